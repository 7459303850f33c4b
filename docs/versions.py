"""Documentation of several versions side by side: ``python docs/versions.py DIRECTORY [REF...]``.

Each tag or branch is built from its own tree into ``DIRECTORY/VERSION``; a version that is there already is left alone,
unless it is a branch. ``index.html`` lists the versions and ``versions.js`` is what the menu of each page reads, so a
page that was built before offers the versions that were built after it. All are built with the packages of one
environment, that of the newest.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]

PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>fyrehose_twisted: versions of the documentation</title>
<style>
  body {{ max-width: 40rem; margin: 3rem auto; padding: 0 1rem; font: 1rem/1.5 sans-serif; color-scheme: light dark }}
  a {{ color: LinkText }}
</style>
<h1>fyrehose_twisted</h1>
<p>Documentation of <a href="{newest}/index.html">version {newest}</a>, and of all versions:</p>
<ul>
{items}</ul>
"""


def git(*words: str, repository: Path) -> bytes:
    """Return the output of git."""
    return subprocess.run(["git", *words], cwd=repository, check=True, stdout=subprocess.PIPE).stdout


def default_refs(repository: Path) -> list[str]:
    """Return the tags of versions that have these pages, and the branch that is checked out."""
    tags = git("tag", "--list", "v*", repository=repository).decode().split()
    branch = git("rev-parse", "--abbrev-ref", "HEAD", repository=repository).decode().strip()
    return [*(tag for tag in tags if has_pages(tag, repository)), branch]


def has_pages(ref: str, repository: Path) -> bool:
    """Return whether the documentation of a ref has a menu of versions."""
    command = ["git", "cat-file", "-e", f"{ref}:docs/versions.py"]
    return subprocess.run(command, cwd=repository, stderr=subprocess.DEVNULL).returncode == 0


def name_of(ref: str) -> str:
    """Return the version of a tag, or the name of a branch as one directory."""
    match = re.fullmatch(r"v(\d.*)", ref)
    return match[1] if match else re.sub(r"[^\w.-]+", "-", ref)


def is_release(name: str) -> bool:
    """Return whether a directory is named after a version."""
    try:
        Version(name)
    except InvalidVersion:
        return False
    return True


def in_order(names: Sequence[str]) -> list[str]:
    """Return branches first, then versions from the newest."""
    versions = sorted((name for name in names if is_release(name)), key=Version, reverse=True)
    return [*sorted(name for name in names if not is_release(name)), *versions]


def newest(names: Sequence[str]) -> str:
    """Return the newest version that is no pre-release; without one, the newest, and else a branch."""
    versions = [name for name in in_order(names) if is_release(name)]
    final = [name for name in versions if not Version(name).is_prerelease]
    return (final or versions or in_order(names))[0]


def build(ref: str, into: Path, repository: Path) -> None:
    """Build the documentation of a ref from its own tree, with its own modules."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["tar", "-x"], cwd=place, input=git("archive", ref, repository=repository), check=True)
        environment = os.environ | {"PYTHONPATH": str(Path(place) / "src"), "DOCS_VERSION": name_of(ref)}
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(into)]
        subprocess.run(command, cwd=place, env=environment, check=True)
    shutil.rmtree(into / ".doctrees", ignore_errors=True)


def write_list(directory: Path) -> list[str]:
    """Write the page and the script that list the versions in a directory; return them in order."""
    names = in_order([path.name for path in directory.iterdir() if (path / "index.html").exists()])
    items = "".join(f'<li><a href="{name}/index.html">{html.escape(name)}</a></li>\n' for name in names)
    page = PAGE.format(newest=newest(names), items=items)
    (directory / "index.html").write_text(page, encoding="utf-8")
    (directory / "versions.js").write_text(f"window.fyrehoseVersions = {json.dumps(names)};\n", encoding="utf-8")
    return names


def main() -> None:
    """Read the arguments and build what is missing."""
    parser = argparse.ArgumentParser(prog="versions.py", description="Build several versions of the documentation.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("refs", nargs="*", help="tags and branches [all tags with these pages, and the current branch]")
    options = parser.parse_args()
    directory = options.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    for ref in options.refs or default_refs(ROOT):
        into = directory / name_of(ref)
        if is_release(into.name) and (into / "index.html").exists():
            print(f"{into.name} is there", flush=True)
            continue
        print(f"Building {into.name}", flush=True)
        shutil.rmtree(into, ignore_errors=True)
        build(ref, into, ROOT)
    print(f"{directory / 'index.html'} lists {', '.join(write_list(directory))}")


if __name__ == "__main__":
    main()
