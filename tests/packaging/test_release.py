"""The steps of ``make release``, and the fragments of the next changelog."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
CHANGES = ROOT / "changes"
TOWNCRIER = tomllib.loads((ROOT / "towncrier.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
AREAS = {area["path"] for area in TOWNCRIER["section"]}
KINDS = {kind["directory"] for kind in TOWNCRIER["type"]}
FRAGMENTS = sorted(path for path in CHANGES.rglob("*") if path.is_file() and path.name.count(".") == 2)


def load(name: str) -> ModuleType:
    """Import a script of ``releasing``, which is in no package."""
    spec = spec_from_file_location(name, ROOT / "releasing" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load("release")


def git(tree: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True, text=True).stdout


SETTINGS = """\
[metadata]
name = small
version = 0.1.0
classifiers =
    Development Status :: 3 - Alpha
    Typing :: Typed
"""

CHANGELOG = "# Changes\n\n<!-- towncrier release notes start -->\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with the settings of towncrier and an empty changelog."""
    made = tmp_path / "small"
    (made / "changes" / "hydra").mkdir(parents=True)
    for name in ("towncrier.toml", "changes/README.md", "changes/template.md"):
        shutil.copy(ROOT / name, made / name)
    (made / "CHANGELOG.md").write_text(CHANGELOG)
    (made / "setup.cfg").write_text(SETTINGS)
    (made / ".gitignore").write_text("build/\ndist/\n")
    git(made, "init", "--quiet")
    git(made, "config", "user.name", "A Maintainer")
    git(made, "config", "user.email", "maintainer@example.org")
    return made


@pytest.fixture
def commit(project: Path) -> Callable[[dict[str, str]], None]:
    """Return a function that writes files by their names and commits all."""

    def act(files: dict[str, str]) -> None:
        for name, text in files.items():
            (project / name).write_text(text)
        git(project, "add", "--all")
        git(project, "commit", "--quiet", "--message", "Change")

    return act


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1.0.0-rc1", "not normalized; write 1.0.0rc1"),
        ("v1.0.0", "not normalized; write 1.0.0"),
        ("1.0.0+linux", "not normalized; write 1.0.0"),
        ("one", "is not a version; write it like 1.2.3"),
        ("0.1.0", "is not above the present one, 0.1.0"),
        ("0.1.0rc1", "is not above the present one, 0.1.0"),
        ("0.2.0", "the tag v0.2.0 exists"),
    ],
)
def test_release_refuses_an_unusable_version(text: str, complaint: str) -> None:
    with pytest.raises(release.ReleaseRefused, match=complaint):
        release.check_version(text, "0.1.0", ["v0.2.0"])


def test_release_accepts_a_higher_version() -> None:
    assert str(release.check_version("1.0.0rc1", "0.1.0", ["v0.1.0"])) == "1.0.0rc1"


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("0.2.0", "3 - Alpha"),
        ("1.0.0a1", "3 - Alpha"),
        ("1.0.0rc1", "4 - Beta"),
        ("1.0.0", "5 - Production/Stable"),
        ("1.1.0.dev1", "3 - Alpha"),
    ],
)
def test_development_status_follows_from_the_version(version: str, status: str) -> None:
    assert release.status_of(Version(version)) == status


@pytest.mark.parametrize(
    ("version", "current", "kinds", "refused"),
    [
        ("1.0.1", "1.0.0", {"bugfix", "doc"}, False),
        ("1.0.1", "1.0.0", {"bugfix", "feature"}, True),
        ("1.0.1", "1.0.0", {"removal"}, True),
        ("1.1.0", "1.0.0", {"feature", "removal"}, False),
        ("1.0.0", "1.0.0rc1", {"feature"}, False),
        ("1.0.0rc1", "0.1.0", {"feature", "removal"}, False),
    ],
)
def test_patch_with_new_things_is_refused(version: str, current: str, kinds: set[str], refused: bool) -> None:
    if refused:
        with pytest.raises(release.ReleaseRefused, match="raise the minor version"):
            release.check_step(Version(version), Version(current), kinds)
    else:
        release.check_step(Version(version), Version(current), kinds)


def test_version_is_set_in_the_settings_of_the_project_only_where_it_stands() -> None:
    before = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    after = release.with_version(before, Version("99.0.0"))
    assert release.read_version(after) == "99.0.0"
    changed = [pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if pair[0] != pair[1]]
    assert [new for _, new in changed] == ["version = 99.0.0", "    Development Status :: 5 - Production/Stable"]


def test_release_refuses_a_tree_with_uncommitted_changes(
    project: Path, commit: Callable[[dict[str, str]], None]
) -> None:
    commit({})
    release.check_tree(project)
    (project / "stray.py").write_text("")
    with pytest.raises(release.ReleaseRefused, match=r"not committed:\n\?\? stray\.py"):
        release.check_tree(project)


@pytest.mark.extended
def test_changelog_of_a_release_is_grouped_by_area_and_kind(
    project: Path, commit: Callable[[dict[str, str]], None]
) -> None:
    (project / "changes" / "spark").mkdir()
    commit(
        {
            "changes/hydra/+quick.feature.md": "A leader is replaced sooner.\n",
            "changes/hydra/+bots.feature.md": "**Bots.** A bot outlives its node.\n",
            "changes/hydra/12.removal.md": "`found` is called `bootstrap`.\n",
            "changes/spark/+lag.bugfix.md": "The lag is right.\n",
        }
    )
    release.commit_release(project, Version("1.0.0"), "2031-01-02")
    assert (project / "CHANGELOG.md").read_text() == (
        f"{CHANGELOG}\n"
        "## 1.0.0 (2031-01-02)\n\n"
        "### Hydra: bots on IRC that survive\n\n"
        "#### Removed or changed\n\n"
        "- `found` is called `bootstrap`. (#12)\n\n"
        "#### New\n\n"
        "- **Bots.** A bot outlives its node.\n"
        "- A leader is replaced sooner.\n\n"
        "### Spark\n\n"
        "#### Fixed\n\n"
        "- The lag is right.\n"
    )
    assert git(project, "log", "-1", "--format=%an %s").strip() == "A Maintainer Release 1.0.0"
    assert git(project, "status", "--porcelain") == ""
    assert sorted(path.name for path in (project / "changes").rglob("*.md")) == ["README.md", "template.md"]
    assert "version = 1.0.0\n" in (project / "setup.cfg").read_text()


@pytest.mark.extended
@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, "nothing has changed"),
        ({"changes/hydra/+quick.feature.md": "Quick.\n", "changes/hydra/+slow.fix.md": "Slow.\n"}, r"\+slow\.fix\.md"),
    ],
)
def test_release_refuses_fragments_that_are_missing_or_of_no_kind(
    project: Path, commit: Callable[[dict[str, str]], None], files: dict[str, str], complaint: str
) -> None:
    commit(files)
    with pytest.raises(release.ReleaseRefused, match=complaint):
        release.commit_release(project, Version("1.0.0"), "2031-01-02")


@pytest.mark.extended
def test_failed_release_leaves_the_checkout_as_it_was(project: Path, commit: Callable[[dict[str, str]], None]) -> None:
    commit({"changes/hydra/+quick.feature.md": "Quick.\n", "setup.py": "raise SystemExit('cannot be built')\n"})
    before = git(project, "rev-parse", "HEAD")
    with pytest.raises(release.ReleaseRefused, match="cannot be built"):
        release.release("1.0.0", project, compiled=False, bare="environment")
    assert git(project, "rev-parse", "HEAD") == before
    assert git(project, "status", "--porcelain") == ""
    assert not (project / "dist").exists()


def test_advice_uploads_no_wheel_that_an_index_refuses() -> None:
    names = ("a-1.tar.gz", "a-1-py3-none-any.whl", "a-1-cp311-cp311-linux_x86_64.whl")
    advice = release.advice("1.0.0", [Path("dist", name) for name in names])
    assert f"{Path(sys.executable).parent.name}/twine upload dist/a-1.tar.gz dist/a-1-py3-none-any.whl\n" in advice
    assert "offer a-1-cp311-cp311-linux_x86_64.whl for download" in advice
    assert "git tag --sign v1.0.0 " in advice


@pytest.mark.soak
def test_release_of_this_tree_is_built_checked_installed_and_committed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    left_out = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
    git(tree, "init", "--quiet")
    git(tree, "config", "user.name", "A Maintainer")
    git(tree, "config", "user.email", "maintainer@example.org")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "All")
    command = [sys.executable, "releasing/release.py", "99.0.0rc1", "--no-compiled", "--in", "environment"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ran a backbone, a journal, a publisher and subscribers in an empty virtual environment" in done.stdout
    assert {path.name for path in (tree / "dist").iterdir()} == {
        "fyrehose_twisted-99.0.0rc1-py3-none-any.whl",
        "fyrehose_twisted-99.0.0rc1.tar.gz",
    }
    assert git(tree, "log", "--format=%s").split("\n")[0] == "Release 99.0.0rc1"
    assert git(tree, "tag") == git(tree, "status", "--porcelain") == ""


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.relative_to(CHANGES).as_posix())
def test_fragment_has_an_area_and_a_kind_and_reads_as_an_entry(fragment: Path) -> None:
    text = fragment.read_text(encoding="utf-8")
    assert fragment.parent.relative_to(CHANGES).as_posix().replace(".", "") in AREAS
    assert fragment.name.split(".")[1] in KINDS
    assert re.match(r"(\*\*[A-Z][^*]+\.\*\* )?[A-Z`\[]", text), "an entry begins with a capital letter or a name"
    assert text.endswith(".\n"), "an entry ends with a full stop"
    assert max(map(len, text.splitlines())) <= 120
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (ROOT / target).exists(), f"{target} leads nowhere from the top of the repository"


def test_no_two_fragments_say_the_same() -> None:
    texts = [" ".join(path.read_text(encoding="utf-8").split()) for path in FRAGMENTS]
    beginnings = [text[:60] for text in texts]
    assert sorted({text for text in beginnings if beginnings.count(text) > 1}) == []


OLD_NAMES = {
    "max-subscribers": "max-clients",
    "hydra.carriers": "hydra.transports",
    "hydra.succession": "hydra.leader-failures",
    "--found`": "--bootstrap`",
    "--neighbour": "--peer",
    "FoundingMismatch": "ClusterIdMismatch",
}
"""Names that were replaced before the first release, and the names that stand in for them."""


@pytest.mark.parametrize("old", OLD_NAMES)
def test_only_a_fragment_about_the_change_uses_an_old_name(old: str) -> None:
    for fragment in FRAGMENTS:
        text = fragment.read_text(encoding="utf-8")
        if old in text:
            assert OLD_NAMES[old] in text, f"{fragment.name} speaks of {old}"
