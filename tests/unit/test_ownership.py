"""Whose a run is, by what the TypeScript packages say."""

from typing import Any

import pytest

from pikku_storage.access.ownership import assert_run_owner
from pikku_storage.exceptions import WorkflowRunForbiddenError
from tests.data.vectors import load


class Wire:
    """A run, as the vectors have it."""

    def __init__(self, wire: dict[str, Any] | None) -> None:
        self.owner_id = (wire or {}).get("pikkuUserId")


@pytest.mark.parametrize("vector", load("approval")["runOwnership"])
def test_who_may_read_a_run_is_what_the_vectors_say(vector: dict[str, Any]) -> None:
    user_id = (vector["session"] or {}).get("userId")
    expected = vector["result"]
    if expected["ok"]:
        assert_run_owner(Wire(vector["wire"]), user_id)
        return
    with pytest.raises(WorkflowRunForbiddenError) as raised:
        assert_run_owner(Wire(vector["wire"]), user_id)
    assert (type(raised.value).__name__, str(raised.value)) == (expected["errorName"], expected["errorMessage"])
