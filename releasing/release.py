"""A release: ``python releasing/release.py 1.2.3`` builds, checks and tries it, and commits it.

The release is made in a clone of HEAD below ``build``, so a file that is not committed cannot get into it, and a step
that fails leaves the checkout as it was. Only when everything has passed, the commit with the version and the changelog
is added to the checkout and the distributions are moved to ``dist``. Nothing is tagged, pushed or uploaded.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]

TOP_LEVEL = "fyrehose_twisted,pyspark_fyrehose.py,twisted"
"""What a wheel may add to site-packages. Below ``twisted`` there are plugins only."""

NOT_IN_SDIST = ".ci,.ci/*,src/twisted,src/twisted/**"
"""Differences between the repository and its sdist: a link to a directory becomes a directory."""

STATUSES = {"final": "5 - Production/Stable", "rc": "4 - Beta", "b": "4 - Beta", "a": "3 - Alpha", "dev": "3 - Alpha"}
"""Classifier by the kind of a release; before 1.0 it is Alpha or Beta."""


class ReleaseRefused(Exception):
    """The release cannot be made from this checkout, or a check of it failed."""


def run(*command: str | Path, cwd: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. :raises ReleaseRefused: with the output if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FYREHOSE"))}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **(variables or {})}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        words = " ".join(str(word) for word in command)
        raise ReleaseRefused(f"{words}\nexited with status {done.returncode}:\n{output.rstrip()}")
    return output


def python_module(name: str, *arguments: str | Path, cwd: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a module of the environment that runs this script."""
    return run(sys.executable, "-m", name, *arguments, cwd=cwd, variables=variables)


def check_version(text: str, current: str, tags: Sequence[str]) -> Version:
    """Return the version of the release.

    :raises ReleaseRefused: if it is no normalized version of PEP 440, not above ``current``, or has a tag.
    """
    try:
        version = Version(text)
    except InvalidVersion:
        raise ReleaseRefused(f"VERSION={text} is not a version; write it like 1.2.3 or 1.2.3rc1") from None
    if str(version) != text or version.local is not None:
        raise ReleaseRefused(f"VERSION={text} is not normalized; write {version.public}")
    if version <= Version(current):
        raise ReleaseRefused(f"VERSION={text} is not above the present one, {current}")
    if f"v{text}" in tags:
        raise ReleaseRefused(f"the tag v{text} exists: version {text} has been released")
    return version


def check_step(version: Version, current: Version, kinds: Collection[str]) -> None:
    """Check that the version goes up as far as the kinds of its fragments ask for.

    :raises ReleaseRefused: if a patch has something new or changed.
    """
    more = sorted({"feature", "removal"}.intersection(kinds))
    if more and version.release[:2] == current.release[:2] and not current.is_prerelease:
        raise ReleaseRefused(
            f"{version} is a patch, and changes/ has fragments of kind {' and '.join(more)}: raise the minor version"
        )


def status_of(version: Version) -> str:
    """Return the trove classifier for the development status of a version."""
    if version < Version("1.0.0a0"):
        return "3 - Alpha"
    kind = "dev" if version.is_devrelease else version.pre[0] if version.pre else "final"
    return STATUSES[kind]


def read_version(settings: str) -> str:
    """Return the version in the text of ``setup.cfg``."""
    found: list[str] = re.findall(r"^version = (\S+)$", settings, re.MULTILINE)
    [version] = found
    return version


def with_version(settings: str, version: Version) -> str:
    """Return the text of ``setup.cfg`` with a version and the development status that belongs to it."""
    settings = re.sub(r"^version = \S+$", f"version = {version}", settings, count=1, flags=re.MULTILINE)
    return re.sub(
        r"^    Development Status :: .+$",
        f"    Development Status :: {status_of(version)}",
        settings,
        flags=re.MULTILINE,
    )


def check_tree(checkout: Path) -> None:
    """Check that everything in a checkout is committed. :raises ReleaseRefused: with the files that are not."""
    changed = run("git", "status", "--porcelain", cwd=checkout).splitlines()
    if changed:
        listed = "\n".join(changed[:10] + ["..."] * (len(changed) > 10))
        raise ReleaseRefused(f"the tree has changes that are not committed:\n{listed}")


def clone(checkout: Path, place: Path) -> Path:
    """Clone HEAD of a checkout and return the clone, in which the author of commits is that of the checkout."""
    tree = place / "tree"
    run("git", "clone", "--quiet", "--no-hardlinks", checkout, tree, cwd=place)
    for setting in ("user.name", "user.email"):
        run("git", "config", setting, run("git", "config", setting, cwd=checkout).strip(), cwd=tree)
    return tree


def commit_release(tree: Path, version: Version, day: str) -> None:
    """Assemble the changelog, set the version and commit both. :raises ReleaseRefused: if there are no fragments."""
    kinds = {path.name.split(".")[1] for path in (tree / "changes").rglob("*.*.md")}
    if not kinds:
        raise ReleaseRefused("changes/ has no fragments: nothing has changed since the last release")
    settings = tree / "setup.cfg"
    check_step(version, Version(read_version(settings.read_text(encoding="utf-8"))), kinds)
    settings.write_text(with_version(settings.read_text(encoding="utf-8"), version), encoding="utf-8")
    python_module("towncrier", "build", "--yes", "--version", str(version), "--date", day, cwd=tree)
    left = [path.name for path in (tree / "changes").rglob("*.md") if path.name not in ("README.md", "template.md")]
    if left:
        raise ReleaseRefused(f"towncrier did not take these fragments: {', '.join(sorted(left)[:10])}")
    run("git", "add", "--all", cwd=tree)
    run("git", "commit", "--quiet", "--no-verify", "--message", f"Release {version}", cwd=tree)


def build(tree: Path, into: Path) -> None:
    """Build the sdist, and the pure wheel from it. Times in archives are that of the commit."""
    epoch = run("git", "log", "-1", "--format=%ct", cwd=tree).strip()
    python_module("build", "--no-isolation", "--outdir", into, tree, cwd=tree, variables={"SOURCE_DATE_EPOCH": epoch})


def can_compile() -> bool:
    """Return whether there are a C compiler and the headers of this Python."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return headers.exists() and any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def build_compiled(tree: Path, into: Path) -> None:
    """Build a wheel with compiled nodes, for this Python and platform."""
    python_module(
        "pip",
        *("wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", into, tree),
        cwd=into,
        variables={"FYREHOSE_COMPILE": "1"},
    )


def check_contents(tree: Path, distributions: Sequence[Path]) -> None:
    """Check metadata and contents of the distributions. :raises ReleaseRefused: with the finding of a checker."""
    python_module("twine", "check", "--strict", *distributions, cwd=tree)
    python_module("check_manifest", "--no-build-isolation", "--ignore", NOT_IN_SDIST, tree, cwd=tree)
    for wheel in distributions:
        if wheel.name.endswith("-none-any.whl"):
            python_module("check_wheel_contents", "--no-config", "--toplevel", TOP_LEVEL, wheel, cwd=tree)


def take_over(checkout: Path, tree: Path) -> None:
    """Add the commit of the release to the branch of the checkout, which has not moved meanwhile."""
    check_tree(checkout)
    run("git", "fetch", "--quiet", tree, "HEAD", cwd=checkout)
    run("git", "merge", "--quiet", "--ff-only", "FETCH_HEAD", cwd=checkout)


def release(version_text: str, checkout: Path, *, compiled: bool, bare: str) -> list[Path]:
    """Make a release and return its distributions."""
    # Each is a step of minutes or a refusal, so the cheap ones come first.
    current = read_version((checkout / "setup.cfg").read_text(encoding="utf-8"))
    version = check_version(version_text, current, run("git", "tag", "--list", cwd=checkout).split())
    check_tree(checkout)
    place = checkout / "build" / "release"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    tree, made = clone(checkout, place), place / "dist"
    made.mkdir()

    say(f"Assembling the changelog of {version}")
    commit_release(tree, version, datetime.datetime.now(datetime.UTC).date().isoformat())
    say("Building the sdist and the wheel")
    build(tree, made)
    if compiled and can_compile():
        say("Compiling a wheel; this takes minutes")
        build_compiled(tree, made)
    elif compiled:
        say("Not compiling a wheel: there is no C compiler, or there are no headers of Python")
    distributions = sorted(made.iterdir())

    say("Checking the distributions")
    check_contents(tree, distributions)
    for wheel in distributions:
        if wheel.name.endswith("-none-any.whl"):
            say(run(sys.executable, ROOT / "releasing" / "try_release.py", wheel, "--in", bare, cwd=place).rstrip())
        elif wheel.suffix == ".whl":
            say(run(sys.executable, tree / "tests" / "packaging" / "try_wheel.py", wheel, cwd=place).splitlines()[-1])

    take_over(checkout, tree)
    target = checkout / "dist"
    target.mkdir(exist_ok=True)
    moved = [Path(shutil.move(path, target / path.name)) for path in distributions]
    shutil.rmtree(place)
    return moved


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)


def advice(version: str, distributions: Sequence[Path]) -> str:
    """Return what remains to be done by hand."""
    uploaded = " ".join(f"dist/{path.name}" for path in distributions if "-linux_" not in path.name)
    kept = [path.name for path in distributions if "-linux_" in path.name]
    lines = [
        f"Version {version} is committed and built, and nothing has left this machine. Read CHANGELOG.md, then:",
        f"    git tag --sign v{version} --message 'Version {version}'",
        f"    git push --atomic origin HEAD v{version}",
        f"    {os.path.relpath(Path(sys.executable).with_name('twine'))} upload {uploaded}",
        f"    make docs-versions    # with the pages of v{version}",
        "To take it back before that: git reset --keep HEAD~1",
    ]
    if kept:
        lines.append(f"An index takes no wheel for plain linux; offer {', '.join(kept)} for download elsewhere.")
    return "\n".join(lines)


def main() -> None:
    """Read the arguments and make the release."""
    parser = argparse.ArgumentParser(prog="release.py", description="Build, check, try and commit a release.")
    parser.add_argument("version", help="such as 1.2.3 or 1.2.3rc1")
    parser.add_argument("--no-compiled", action="store_true", help="build no compiled wheel")
    parser.add_argument(
        "--in",
        dest="bare",
        choices=("auto", "bare-system", "environment"),
        default="auto",
        help="where to install and run the wheel; auto is a bare system if there are root and debootstrap",
    )
    options = parser.parse_args()
    try:
        distributions = release(options.version, Path.cwd(), compiled=not options.no_compiled, bare=options.bare)
    except ReleaseRefused as refusal:
        raise SystemExit(f"make release: {refusal}") from None
    say(advice(options.version, distributions))


if __name__ == "__main__":
    main()
