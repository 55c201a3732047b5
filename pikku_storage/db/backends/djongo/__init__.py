"""djongo, adapted to the Django and the pymongo of today: `"ENGINE": "pikku_storage.db.backends.djongo"`.

djongo (under the AGPL-3.0) writes SQL as MongoDB's commands. It is not part of this package, and only this backend
imports it, which Django loads for a database whose settings name it.

What is changed of it: clients stay open, errors are Django's own, and what Django writes today but djongo does not read
is written as it does (`compiler`) or read as it should (`translator`). There are no transactions: `atomic` has no
effect, and `on_commit` calls at once.
"""
