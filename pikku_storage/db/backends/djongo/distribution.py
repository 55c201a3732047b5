"""Which distribution the module `djongo` comes from."""

from __future__ import annotations

from importlib.metadata import packages_distributions

from django.core.exceptions import ImproperlyConfigured

MODULE = "djongo"


def require_one() -> None:
    """Raise `ImproperlyConfigured` unless exactly one installed distribution has the module.

    djongo and its forks all call it so. pip lets them overwrite each other's files, and what runs then is neither.
    """
    found = sorted(set(packages_distributions().get(MODULE, ())))
    if not found:
        raise ImproperlyConfigured('There is no djongo here: install "django-pikku-storage[djongo]".')
    if len(found) > 1:
        raise ImproperlyConfigured(
            f"The module djongo was installed by {' and by '.join(found)}, over each other. Uninstall all of them, and "
            'install "django-pikku-storage[djongo]" again.'
        )
