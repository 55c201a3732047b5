"""Every write of an engine row passes the place that tells the mirror of it."""

import re
from pathlib import Path

import pikku_storage.workflows

FOLDER = Path(pikku_storage.workflows.__file__).parent
AROUND = re.compile(r"engine\.(?:apply|take|merge_json_key)\(|\.(?:delete|bulk_create|bulk_update)\(")
THE_PLACE = {"querysets/base.py"}
FOR_THE_MIRROR = {"mirroring.py"}


def test_nothing_in_the_engine_writes_around_the_mirror() -> None:
    writers = {
        str(path.relative_to(FOLDER))
        for path in FOLDER.rglob("*.py")
        if "migrations" not in path.parts and AROUND.search(path.read_text(encoding="utf-8"))
    }
    assert writers == THE_PLACE | FOR_THE_MIRROR
