"""The pages about errors: one for each class, whose example raises it with the text that the page shows."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from documented.pages import ROOT, Page
from documented.terminal import pattern_of

SOURCE = ROOT / "src" / "fyrehose_twisted"
DIRECTORY = ROOT / "docs" / "reference" / "errors"
INDEX = (DIRECTORY / "index.md").read_text(encoding="utf-8")
PAGES = {path.stem: Page(path) for path in sorted(DIRECTORY.glob("*.md")) if path.stem != "index"}
EXAMPLES = Path(__file__).parent / "documented" / "error_examples.py"

FAMILIES = {"FyrehoseError", "LocalError", "RemoteError", "OperationalError"}

SHOWN_WITHOUT_RAISING = {"AuthenticationFailed", "FyrehoseError", "RemoteError"}
"""Errors whose examples print something about them instead."""

CAUGHT_INSIDE = {
    "_BadLink": "hydra.transports.link_url",
    "BadFrame": "journal.format.frames",
    "BadHeader": "journal.format.segment_header",
    "BadLine": "hydra.wire.codec",
    "HttpError": "web.response",
    "InvalidField": "parcels.wire.field_codecs",
    "InvariantViolated": "sim.invariants",
    "PowerCut": "sim.disk.disk",
    "ProcessDied": "sim.runs.runner",
    "SchedulerStopped": "query.records.turns",
    "TraceWriteError": "sim.runs.single_run",
    "UnreadableFrame": "cli.dump.headers",
    "UnexpectedMessage": "parcels.simulation.reference_peer",
    "UnsupportedVersion": "journal.format.segment_header",
}
"""Modules of exceptions outside of the tree, which the library catches itself or the simulator raises."""


class Error(NamedTuple):
    """A class of exceptions in the code."""

    module: str
    bases: tuple[str, ...]


def exceptions() -> dict[str, Error]:
    """Return the classes of the code that are exceptions, by name."""
    known = {"BaseException", "Exception", "ValueError", "LookupError", "AssertionError", "OSError", "RuntimeError"}
    classes = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases = tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
                classes[node.name] = Error(module, bases)

    found: set[str] = set()
    while more := {name for name, error in classes.items() if known.union(found) & {*error.bases}} - found:
        found |= more
    return {name: classes[name] for name in found}


EXCEPTIONS = exceptions()


def is_ours(name: str) -> bool:
    """Return whether a class of exceptions belongs to the tree of the library."""
    bases = EXCEPTIONS[name].bases if name in EXCEPTIONS else ()
    return name == "FyrehoseError" or any(is_ours(base) for base in bases)


def test_every_error_of_the_library_has_a_page() -> None:
    assert set(PAGES) == {name for name in EXCEPTIONS if is_ours(name) and not name.startswith("_")}


def test_every_other_exception_is_known_to_be_caught_inside() -> None:
    others = {name: error.module for name, error in EXCEPTIONS.items() if not is_ours(name)}
    assert others == CAUGHT_INSIDE


def test_index_lists_every_error_once() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.md\) \|", INDEX, re.MULTILINE)
    assert sorted([*listed, "FyrehoseError"]) == sorted(PAGES)
    assert sorted(INDEX.partition(":hidden:")[2].split()[:-1]) == sorted(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_page_of_an_error_names_its_module_and_its_bases(name: str) -> None:
    error = EXCEPTIONS[name]
    text = PAGES[name].path.read_text(encoding="utf-8")
    head, _, _ = text.partition("\n## When")
    assert f"# {name}\n\n`fyrehose_twisted.{error.module}.{name}`, a" in head
    first = " ".join(head.split("\n\n")[1].split())
    for base in error.bases:
        assert (f"[{base}]({base}.md)" if base in PAGES else f"`{base}`") in first
    meaning = " ".join("\n".join(head.split("\n\n")[2:]).split())
    assert name in FAMILIES or f"| [{name}]({name}.md) | {meaning} |" in INDEX
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["When", "Example", "What to do"]
    assert [block.language for block in PAGES[name].blocks] == ["python", "text"]


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """Return what the examples print, with the last line of the traceback, by page."""
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT / "src")}
    paths = [str(page.path) for page in PAGES.values()]
    command = [sys.executable, str(EXAMPLES), *paths]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed: dict[str, str] = json.loads(done.stdout)
    return {Path(path).stem: text for path, text in printed.items()}


@pytest.mark.extended
@pytest.mark.parametrize("name", PAGES)
def test_example_raises_the_error_with_the_text_that_the_page_shows(name: str, shown: dict[str, str]) -> None:
    expected = PAGES[name].blocks[1].text
    assert re.fullmatch(pattern_of(expected), shown[name]), f"the example of {name} shows:\n{shown[name]}"
    if name not in SHOWN_WITHOUT_RAISING:
        assert expected.startswith(f"fyrehose_twisted.{EXCEPTIONS[name].module}.{name}: ")
