"""A process of its own that rotates secrets in small batches: `python -m tests.races.rotator`.

It says "ready", waits for a line, and says "batch" after each batch.
"""

import sys

import django

from tests.races.together import wait_for_the_word

BATCH = 20


def main() -> None:
    """Rotate the secrets, from the word on."""
    django.setup()
    from pikku_storage.secrets import store
    from pikku_storage.secrets.rotation import rotate
    from pikku_storage.secrets.tables import sealed_tables

    store.BATCH = BATCH  # type: ignore[attr-defined]
    table = sealed_tables()[0]
    table.keyring.kek_to_write()
    list(table.keyring.keks_to_read(1))
    wait_for_the_word()
    for _ in rotate(table):
        sys.stdout.write("batch\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
