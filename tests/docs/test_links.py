"""Links, pictures, commands and blocks of the documentation lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, PAGES, ROOT, anchors_of, blocks_of, codes_in, links_of, name_of, prose_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_and_picture_leads_to_something(page: Path) -> None:
    broken = []
    for link in links_of(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_every_page_can_be_reached_from_the_index() -> None:
    index = DOCS / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index)}
    assert [name_of(page) for page in sorted(DOCS.rglob("*.md")) if page not in {index, *linked}] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    code = [text for block in blocks_of(page) if block.language == "console" for text in block.text.splitlines()]
    code += codes_in(prose_of(page))
    named = {match for text in code for match in re.findall(r"(?:^|\s)make ([a-z]+)", text)}
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_its_language(page: Path) -> None:
    assert [block.line for block in blocks_of(page) if not block.language] == []
