"""What the service answers with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A process that is, or was, up."""

    COLUMNS: ClassVar = ("deployment_id", "endpoint", "functions", "last_heartbeat", "created_at")

    deployment_id: str
    endpoint: str
    functions: tuple[str, ...]
    last_heartbeat: datetime
    created_at: datetime | None

    @classmethod
    def of(cls, row: dict[str, Any]) -> Deployment:
        """The record of a row."""
        return cls(**{**row, "functions": tuple(row["functions"] or ())})
