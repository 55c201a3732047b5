"""Finding rows by the beginning of a text, by indexes only."""

from __future__ import annotations

from django.db.models import Q

_LAST_CHARACTER = "\U0010ffff"


def id_prefix(prefix: str, vendor: str, *, column: str = "pk") -> Q:
    """Ids, or texts of another column, that begin with `prefix`, in the form for which this database uses its index.

    PostgreSQL has a pattern index for LIKE, and its collations do not sort by code point. SQLite's LIKE ignores case
    and therefore the index, but its order is that of the bytes.
    """
    if vendor == "postgresql":
        return Q(**{f"{column}__startswith": prefix})
    return Q(**{f"{column}__gte": prefix, f"{column}__lt": prefix + _LAST_CHARACTER})
