"""Values that the TypeScript packages computed, as JSON files in `tests/data`."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent


def load(name: str) -> Any:
    """The content of `tests/data/<name>.json`."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def vectors(name: str) -> list[dict[str, Any]]:
    """The entries of `tests/data/<name>.json`."""
    entries: list[dict[str, Any]] = load(name)["vectors"]
    return entries
