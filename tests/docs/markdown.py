"""What the tests read from the documentation: its code blocks, headings, links and tables.

A ```` ```python ```` block runs unless the comment before it says otherwise:

* `<!-- not run: why -->`: it cannot run here;
* `<!-- file: shop/celery.py -->`: it is the content of that file of the tutorial's project;
* `<!-- append: shop/settings.py -->`: it is the end of that file.

`console` and `pycon` blocks run in the tutorial only.

Code that only the tests need stands in a comment that begins with `<!-- test` on a line of its own; readers do not
see it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.rglob("*.md"))

_COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
_DIRECTIVE = re.compile(r"<!-- (?P<name>not run|file|append): (?P<value>.+) -->\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block, or a hidden one; `line` is where its text begins in the page, counted from 1."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None = None
    file: str | None = None
    append: str | None = None

    @property
    def runs_here(self) -> bool:
        """Whether it is Python for the tests' own process."""
        return self.language == "python" and not (self.not_run or self.file or self.append)


def name_of(page: Path) -> str:
    """The page's path as it is written in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """The page's blocks in their order, hidden ones among them."""
    source = page.read_text(encoding="utf-8")
    fences = [_fenced(page, source, match) for match in _FENCE.finditer(source)]
    hidden = [_hidden(page, source, match) for match in _COMMENT.finditer(source) if match[1].startswith(" test\n")]
    return sorted(fences + hidden, key=lambda block: block.line)


def _fenced(page: Path, source: str, match: re.Match[str]) -> Block:
    directive = _DIRECTIVE.search(source, 0, match.start())
    given = {directive["name"].replace(" ", "_"): directive["value"]} if directive else {}
    indent = len(match["indent"])
    return Block(
        page=page,
        line=_line_at(source, match.start("text")),
        language=match["language"],
        text="".join(line[min(indent, len(line) - 1) :] for line in match["text"].splitlines(keepends=True)),
        not_run=given.get("not_run"),
        file=given.get("file"),
        append=given.get("append"),
    )


def _hidden(page: Path, source: str, match: re.Match[str]) -> Block:
    start = match.start(1) + len(" test\n")
    return Block(page=page, line=_line_at(source, start), language="python", text=source[start : match.end(1)])


def _line_at(source: str, position: int) -> int:
    return source.count("\n", 0, position) + 1


def runnable(page: Path) -> list[Block]:
    """The Python blocks that run in the tests' own process."""
    return [block for block in blocks_of(page) if block.runs_here]


def prose_of(page: Path) -> str:
    """The page without its code blocks and comments."""
    return _FENCE.sub("", _COMMENT.sub("", page.read_text(encoding="utf-8")))


def headings_of(page: Path) -> list[str]:
    """The texts of the page's headings, without their hashes."""
    return re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """What a link may name after `#`, as GitHub makes it from a heading."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings_of(page)}


def links_of(page: Path) -> set[str]:
    """Where the page's links and pictures lead."""
    source = prose_of(page)
    markdown = re.findall(r"\]\(([^)\s]+)\)", source)
    html = re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", source)
    return {*markdown, *html}


def table_rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under that heading, without its head."""
    section = prose_of(page).split(f"# {heading}\n", 1)[1]
    rows: list[list[str]] = []
    for line in section.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def codes_in(text: str) -> list[str]:
    """What stands between single backticks."""
    return re.findall(r"`([^`]+)`", text)
