"""Fixtures that run the pages of the documentation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

# Test modules belong to no package.
sys.path.append(str(Path(__file__).parent))

from documented.environments import Environments
from documented.pages import PAGES, ROOT
from documented.terminal import Terminal, open_terminal, run_page_in

FreePort = Callable[[], int]

SMOKE = PAGES[0].only("Use it")
"""Part of README that runs before each commit."""

AT_ONCE = 4
"""Number of pages that run concurrently; they mostly wait."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    running = [SMOKE, *(page for page in PAGES if page.runs)]
    cases = {
        "page": [pytest.param(page, id=page.name) for page in PAGES],
        "running_page": [
            pytest.param(page, id=page.name, marks=[] if page is SMOKE else [pytest.mark.extended]) for page in running
        ],
        "example": [
            pytest.param(path, id=path.name)
            for path in sorted((ROOT / "examples").glob("*.py"))
            if "argparse" in path.read_text(encoding="utf-8")
        ],
    }
    for argument, values in cases.items():
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, values)


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    """Return the environments of the pages, each created once."""
    return Environments(tmp_path_factory.mktemp("environments"))


@pytest.fixture(scope="session")
def page_runs(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
    environments: Environments,
) -> dict[str, Future[None]]:
    """Return the completed runs of all selected pages by name; no other test runs beside them."""
    cases = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    pages = [case["running_page"] for case in cases if "running_page" in case]
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return {
            page.name: pool.submit(run_page_in, tmp_path_factory.mktemp(page.path.stem), page, free_port, environments)
            for page in pages
        }


@pytest.fixture
def shell(tmp_path: Path, free_port: FreePort) -> Iterator[Terminal]:
    """Return a shell in an empty directory, without the project."""
    opened = Terminal(tmp_path, free_port)
    yield opened
    opened.close()


@pytest.fixture
def terminal(tmp_path: Path, free_port: FreePort, environments: Environments) -> Iterator[Terminal]:
    """Return a shell in an empty directory with the result of ``pip install .``, and ``examples`` below it."""
    opened = open_terminal(tmp_path, free_port, environments)
    yield opened
    opened.close()
