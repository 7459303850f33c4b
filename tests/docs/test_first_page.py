"""The first page: what the library is, a short example that runs, and every page within reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from documented.pages import PAGES, ROOT, Page

DOCS = ROOT / "docs"
FIRST = Page(DOCS / "index.md")
GUIDES = Page(DOCS / "howto" / "index.md")
HOWTOS = sorted(path for path in (DOCS / "howto").glob("*.md") if path.name != "index.md")


def linked(page: Page) -> set[Path]:
    """Return the pages that the prose of a page links to."""
    targets = [target.partition("#")[0] for target in page.links if "://" not in target]
    return {(page.path.parent / target).resolve() for target in targets if target.endswith(".md")}


def listed(page: Page) -> set[Path]:
    """Return the pages in the tables of contents of a page."""
    names = [line for block in page.blocks if block.language == "{toctree}" for line in block.text.splitlines() if line]
    return {(page.path.parent / f"{name}.md").resolve() for name in names if not name.startswith(":")}


def test_example_of_the_first_page_comes_before_anything_else_and_has_five_commands() -> None:
    example = FIRST.blocks[0]
    assert example.language == "console"
    assert len(example.commands) == 5
    assert example.line < 15
    assert example.commands[-1].shown == "hello\nworld\n"


def test_first_page_says_the_same_as_the_readme() -> None:
    claim = (
        "**One ordered stream for many processes, repaired when packets are lost and kept when processes are killed,"
    )
    assert claim in FIRST.path.read_text(encoding="utf-8")
    assert claim in PAGES[0].path.read_text(encoding="utf-8")


@pytest.mark.parametrize("howto", HOWTOS, ids=lambda path: path.stem)
def test_every_guide_is_two_links_from_the_first_page(howto: Path) -> None:
    assert GUIDES.path in linked(FIRST)
    assert howto in linked(GUIDES), "list it in docs/howto/index.md, under what its reader wants"


def test_no_guide_is_listed_twice() -> None:
    targets = [target for target in GUIDES.links if "/" not in target]
    assert sorted(targets) == sorted({*targets})


def test_every_page_is_in_a_table_of_contents() -> None:
    contents: set[Path] = {FIRST.path}
    for page in PAGES:
        contents |= listed(page)
    assert {page.path for page in PAGES if page.path.is_relative_to(DOCS)} - contents == set()
