"""The built documentation: its search finds terms, and versions lie side by side with a menu."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

import pytest
from documented.pages import ROOT

PAGES = "index", "versioning", "upgrading", "howto/index", "howto/restarts", "reference/errors/*"
"""Patterns of pages that are built here. Those that are made from the code take minutes."""

CHROMIUM = shutil.which("chromium")


def load_versions() -> ModuleType:
    """Import ``docs/versions.py``, which is in no package."""
    spec = spec_from_file_location("versions", ROOT / "docs" / "versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


versions = load_versions()


def build(into: Path, version: str | None = None) -> Path:
    """Build some pages as ``make docs`` does; links to the others lead nowhere."""
    environment = os.environ | ({"DOCS_VERSION": version} if version else {})
    chosen = ",".join(f"{pattern}.md" if "*" not in pattern else f"{pattern}" for pattern in PAGES)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-D", f"include_patterns={chosen}", "docs", into]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return into


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the pages as two versions."""
    directory = tmp_path_factory.mktemp("docs")
    build(directory / "1.0.0", "1.0.0")
    # The other version differs in its name only; what the pages say of themselves was written when they were built.
    shutil.copytree(directory / "1.0.0", directory / "1.1.0")
    assert versions.write_list(directory) == ["1.1.0", "1.0.0"]
    return directory


def search_index(directory: Path) -> dict[str, object]:
    """Return the search index of built pages."""
    text = (directory / "searchindex.js").read_text(encoding="utf-8")
    found: dict[str, object] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    return found


@pytest.mark.extended
def test_search_index_has_errors_their_texts_and_options(built: Path) -> None:
    index = search_index(built / "1.0.0")
    names, terms, titles = index["docnames"], index["terms"], index["titleterms"]
    assert isinstance(names, list)
    assert isinstance(terms, dict)
    assert isinstance(titles, dict)

    def pages(term: str) -> set[str]:
        found = terms.get(term, [])
        return {names[number] for number in (found if isinstance(found, list) else [found])}

    assert "publishtimeout" in titles
    assert "reference/errors/PublishTimeout" in pages("confirm")
    assert "reference/errors/StateFileError" in pages("instead") | pages("restor")
    assert "upgrading" in pages("bootstrap")


def dump(address: str, profile: Path) -> str:
    """Return the document of a page after its scripts have run."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    done = subprocess.run(
        [*command, "--allow-file-access-from-files", "--virtual-time-budget=20000", "--dump-dom", address],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return html.unescape(done.stdout)


@pytest.mark.extended
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize(
    ("query", "target"),
    [
        ("PublishTimeout", "reference/errors/PublishTimeout.html"),
        ("the backbone did not confirm the message", "reference/errors/PublishTimeout.html"),
        ("--cluster-secret-file", "upgrading.html"),
    ],
)
def test_search_in_a_browser_finds_the_page(built: Path, tmp_path: Path, query: str, target: str) -> None:
    document = dump(f"{(built / '1.0.0/search.html').as_uri()}?q={quote(query)}", tmp_path)
    results = document.partition('id="search-results"')[2]
    assert f'href="{target}' in results


@pytest.mark.extended
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_menu_of_a_page_lists_versions_that_were_built_later(built: Path, tmp_path: Path) -> None:
    document = dump((built / "1.0.0/reference/errors/NotConnected.html").as_uri(), tmp_path)
    menu = document.partition('id="versions"')[2].partition("</select>")[0]
    assert re.findall(r"<option[^>]*>([^<]+)</option>", menu) == ["1.1.0", "1.0.0"]
    assert 'href="../../../index.html"' in document


@pytest.mark.extended
def test_single_build_names_its_version_without_a_menu(tmp_path: Path) -> None:
    page = (build(tmp_path / "docs") / "index.html").read_text(encoding="utf-8")
    [version] = re.findall(r"^version = (\S+)$", (ROOT / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"fyrehose_twisted {version}</title>" in page
    assert 'id="versions"' not in page


@pytest.mark.parametrize(
    ("names", "order", "newest"),
    [
        (["1.0.0", "main", "1.10.0", "1.9.0", "2.0.0rc1"], ["main", "2.0.0rc1", "1.10.0", "1.9.0", "1.0.0"], "1.10.0"),
        (["1.0.0rc1", "1.0.0rc2"], ["1.0.0rc2", "1.0.0rc1"], "1.0.0rc2"),
        (["main"], ["main"], "main"),
    ],
)
def test_versions_are_listed_from_the_newest(names: list[str], order: list[str], newest: str) -> None:
    assert versions.in_order(names) == order
    assert versions.newest(names) == newest


@pytest.mark.parametrize(("ref", "name"), [("v1.0.0", "1.0.0"), ("main", "main"), ("fix/docs", "fix-docs")])
def test_directory_of_a_ref_is_its_version(ref: str, name: str) -> None:
    assert versions.name_of(ref) == name


def test_list_of_versions_leads_to_the_newest(tmp_path: Path) -> None:
    for name in ("main", "1.0.0", "2.0.0rc1", "empty"):
        (tmp_path / name).mkdir()
        if name != "empty":
            (tmp_path / name / "index.html").write_text("pages")
    assert versions.write_list(tmp_path) == ["main", "2.0.0rc1", "1.0.0"]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"]+)"', page) == [
        f"{name}/index.html" for name in ("1.0.0", "main", "2.0.0rc1", "1.0.0")
    ]
    assert (tmp_path / "versions.js").read_text() == 'window.fyrehoseVersions = ["main", "2.0.0rc1", "1.0.0"];\n'


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., bytes]:
    """Return a function that runs git in a new repository."""
    place = tmp_path / "repository"
    place.mkdir()

    def run(*words: str) -> bytes:
        identity = ("-c", "user.name=A Maintainer", "-c", "user.email=maintainer@example.org")
        return bytes(versions.git(*identity, *words, repository=place))

    run("init", "--quiet", "--initial-branch=main")
    return run


def test_only_tags_with_a_menu_of_versions_are_built(repository: Callable[..., bytes], tmp_path: Path) -> None:
    repository("commit", "--quiet", "--allow-empty", "--message", "Old")
    repository("tag", "v0.1.0")
    (tmp_path / "repository/docs").mkdir()
    (tmp_path / "repository/docs/versions.py").write_text("")
    repository("add", "--all")
    repository("commit", "--quiet", "--message", "New")
    repository("tag", "v1.0.0")
    repository("tag", "other")
    assert versions.default_refs(tmp_path / "repository") == ["v1.0.0", "main"]


CONF = """\
import os

from fyrehose_of_a_tag import NAME

project, extensions, html_theme = NAME, ["myst_parser"], "basic"
release = os.environ["DOCS_VERSION"]
"""


@pytest.mark.extended
def test_each_version_is_built_from_the_pages_and_modules_of_its_tag(
    repository: Callable[..., bytes], tmp_path: Path
) -> None:
    place, built = tmp_path / "repository", tmp_path / "built"
    for folder in ("docs", "src"):
        (place / folder).mkdir()
    (place / "docs/conf.py").write_text(CONF)
    for number in ("1.0.0", "2.0.0"):
        (place / "docs/index.md").write_text(f"# Page of {number}\n")
        (place / "src/fyrehose_of_a_tag.py").write_text(f"NAME = 'Module of {number},'\n")
        repository("add", "--all")
        repository("commit", "--quiet", "--message", number)
        repository("tag", f"v{number}")
    (place / "docs/index.md").write_text("# Not committed\n")
    for number in ("1.0.0", "2.0.0"):
        versions.build(f"v{number}", built / number, place)
        page = (built / number / "index.html").read_text(encoding="utf-8")
        assert f"Page of {number}" in page
        assert f"Module of {number}, {number}" in page
        assert not (built / number / ".doctrees").exists()


@pytest.mark.soak(seconds=600)
def test_whole_documentation_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", tmp_path / "built"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
