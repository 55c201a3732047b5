"""What the address asks the page of a run for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from console.workflows.drawing import LaneQuery
from console.workflows.states import FILTERABLE

MOST_OPENED = 8
"""So many child runs may be open at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """What the address asks the page for.

    In the address, as everywhere on the page, events are counted from 1, and 0 is the time before the first.
    """

    lanes: LaneQuery
    step_id: str

    @classmethod
    def from_params(cls, params: QueryDict) -> PageQuery:
        """From the query string; what makes no sense there is left out."""
        state = params.get("state", "")
        return cls(
            lanes=LaneQuery(
                state=state if state in FILTERABLE else "",
                name=params.get("name", "").strip()[:255],
                group=params.get("group", ""),
                page=_number(params.get("page")) or 1,
                hides_idle=params.get("idle") == "hide",
                at=_event_number(params.get("at")),
                opened=tuple(dict.fromkeys(params.getlist("open")))[-MOST_OPENED:],
            ),
            step_id=params.get("step", ""),
        )

    def link(self, **changes: Any) -> str:
        """The query string of this view of the page with some parameters changed; `None` leaves one out."""
        lanes = self.lanes
        params = {
            "state": lanes.state or None,
            "name": lanes.name or None,
            "group": lanes.group or None,
            "page": lanes.page if lanes.page > 1 else None,
            "idle": "hide" if lanes.hides_idle else None,
            "at": None if lanes.at is None else lanes.at + 1,
            "step": self.step_id or None,
            "open": lanes.opened,
            **changes,
        }
        return f"?{urlencode({name: value for name, value in params.items() if value is not None}, doseq=True)}"

    def toggling(self, run_id: str) -> str:
        """The query string of this view with the lanes of that child run opened, or closed."""
        opened = self.lanes.opened
        return self.link(
            open=tuple(each for each in opened if each != run_id) if run_id in opened else (*opened, run_id)
        )


def _event_number(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else max(number, 0) - 1


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else max(-1, int(text))
    except ValueError:
        return None
