"""Change lists that page by key: no page counts the rows, and a deep page costs what the first one costs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Field, Model, Q, QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:
    from console.base import EngineRowAdmin

BEFORE = "before"
AFTER = "after"
_SEPARATOR = "~"


class KeysetChangeList(ChangeList):
    """Rows in the order of the admin's `keyset`, two columns of which the last is unique.

    `?before=` and `?after=` hold the key of the last row seen; whoever changes a filter starts at the first page.
    """

    model_admin: EngineRowAdmin

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        params = request.GET.copy()
        self._before = params.pop(BEFORE, [""])[-1]
        self._after = params.pop(AFTER, [""])[-1]
        # The cursor is no filter: neither the links of the filters nor the search form shall carry it on.
        request.GET = params  # type: ignore[assignment]
        self.older_url = self.newer_url = ""
        self.model_admin = kwargs.get("model_admin") or args[10]
        self.keyset = self.model_admin.get_keyset(request)
        super().__init__(request, *args, **kwargs)

    @property
    def is_first_page(self) -> bool:
        """Whether no cursor is set."""
        return not (self._before or self._after)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Always the keyset: another order would have no index."""
        return list(self.keyset)

    def get_results(self, request: HttpRequest) -> None:
        """One page of rows, and whether there are more on either side."""
        per_page = self.list_per_page
        rows, backwards = self.queryset, bool(self._after)
        if backwards:
            rows = self._beyond(rows, self._after, backwards=True).reverse()
        elif self._before:
            rows = self._beyond(rows, self._before, backwards=False)
        found = list(rows[: per_page + 1])
        has_more, found = len(found) > per_page, found[:per_page]
        if backwards:
            found.reverse()
        if found and (has_more if not backwards else True):
            self.older_url = self.get_query_string({BEFORE: self._key(found[-1])})
        if found and (has_more if backwards else not self.is_first_page):
            self.newer_url = self.get_query_string({AFTER: self._key(found[0])})
        self.first_url = self.get_query_string()
        self.result_list = found
        # The templates of the admin want a number; that of the page is the one that is known.
        self.result_count = self.full_result_count = len(found)
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(found, per_page)
        self.model_admin.prepare_page(request, found)

    def _key(self, row: Model) -> str:
        value = getattr(row, self._columns[0])
        first = value.isoformat() if isinstance(value, datetime) else str(value)
        # A name may hold the separator.
        first = first.replace("%", "%25").replace(_SEPARATOR, "%7E")
        return f"{first}{_SEPARATOR}{getattr(row, self._columns[1])}"

    @property
    def _columns(self) -> tuple[str, str]:
        first, last = (column.removeprefix("-") for column in self.keyset)
        return first, last

    def _beyond(self, rows: QuerySet[Any], key: str, *, backwards: bool) -> QuerySet[Any]:
        first, last = self._columns
        column = cast("Field[Any, Any]", self.model._meta.get_field(first))
        text, separator, identifier = key.partition(_SEPARATOR)
        try:
            value = column.to_python(unquote(text))
        except ValidationError as error:
            raise IncorrectLookupParameters(error) from error
        if not separator or not text:
            raise IncorrectLookupParameters(key)
        descending = self.keyset[0].startswith("-") is not backwards
        way = "lt" if descending else "gt"
        # The first condition follows from the second, but it is the one that every database finds the index for.
        return rows.filter(
            Q(**{f"{first}__{way}e": value}), Q(**{f"{first}__{way}": value}) | Q(**{f"{last}__{way}": identifier})
        )
