"""Consistency of declared and imported dependencies, their licences and their wheels."""

from __future__ import annotations

import ast
import configparser
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fyrehose_twisted"

EXTRAS_OF = {
    "_native.py": {"compile"},
    "freenet/wire/signing.py": {"keys"},
    "journal/arrow/batches.py": {"parquet"},
    "journal/arrow/columns.py": {"parquet"},
    "journal/arrow/parquet.py": {"parquet"},
    "journal/arrow/schema.py": {"parquet"},
    "parcels/client/http_client.py": {"web"},
    "parcels/web/webhooks/http_sender.py": {"web"},
    "query/": {"query"},
    "sealing/": {"keys"},
    "sim/pytest_plugin.py": {"test"},
    "spark/": {"spark"},
    "experiments/topologies/topology.py": {"graphs"},
    "experiments/sweep/": {"spark", "report"},
    "spark/report/": {"spark", "report"},
}
"""Extras that a module may import besides the core, by path prefix; the longest prefix counts."""

PERMISSIVE = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "MIT", "PSF-2.0", "Zlib", "ZPL-2.1"}
EXCEPTIONS = {"tqdm": {"MPL-2.0"}}
"""MPL applies only to changes of the package's own files."""


def declared() -> dict[str, set[str]]:
    """Return the distributions that each extra requires, including those of extras it refers to; ``""`` is the core."""
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "setup.cfg")
    texts = {"": parser["options"]["install_requires"], **parser["options.extras_require"]}
    parsed = {extra: [Requirement(line) for line in text.split("\n") if line.strip()] for extra, text in texts.items()}

    def names(extra: str) -> Iterator[str]:
        for requirement in parsed[extra]:
            if canonicalize_name(requirement.name) == "fyrehose-twisted":
                for other in requirement.extras:
                    yield from names(other)
            else:
                yield canonicalize_name(requirement.name)

    return {extra: set(names(extra)) for extra in parsed}


DECLARED = declared()

PACKAGES = packages_distributions()


def imported() -> dict[str, set[str]]:
    """Return third-party imports by module."""
    found: dict[str, set[str]] = {}
    for path in [*PACKAGE.rglob("*.py"), PACKAGE.parent / "pyspark_fyrehose.py"]:
        place = str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else PACKAGE.parent))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                modules = [node.module]
            else:
                continue
            others = {module for module in modules if module.partition(".")[0] not in sys.stdlib_module_names}
            found.setdefault(place, set()).update(
                module for module in others if not module.startswith("fyrehose_twisted")
            )
    return {place: modules for place, modules in found.items() if modules}


IMPORTED = imported()


def distributions_of(module: str) -> set[str]:
    """Return the distributions that may provide a module. The Zope packages share a namespace."""
    first, *rest = module.split(".")
    if first == "zope":
        return {f"zope-{rest[0]}"}
    return {canonicalize_name(name) for name in PACKAGES.get(first, [first])} - {"fyrehose-twisted"}


def allowed(place: str) -> set[str]:
    """Return the distributions that a module may import."""
    extras: set[str] = next(
        (EXTRAS_OF[start] for start in sorted(EXTRAS_OF, key=len, reverse=True) if place.startswith(start)), set()
    )
    return set.union(DECLARED[""], *(DECLARED[extra] for extra in extras))


def test_every_import_is_declared_in_the_extra_of_its_module() -> None:
    wrong = [
        f"{place} imports {module}"
        for place, modules in sorted(IMPORTED.items())
        for module in sorted(modules)
        if not distributions_of(module) & allowed(place)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_declared_dependency_is_documented_with_a_reason() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "dependencies.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    named = {canonicalize_name(name) for row in rows if row[-1] for name in re.split(r", | with | and ", row[-2])}
    missing = set.union(*DECLARED.values()) - named
    assert not missing


def test_every_core_dependency_is_imported() -> None:
    used = {name for modules in IMPORTED.values() for module in modules for name in distributions_of(module)}
    assert not DECLARED[""] - used


def core() -> list[str]:
    """Return the core dependencies, direct and indirect."""
    pending, seen = sorted(DECLARED[""]), set[str]()
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            needed = map(Requirement, distribution(name).requires or ())
            pending += [
                canonicalize_name(each.name)
                for each in needed
                if each.marker is None or each.marker.evaluate({"extra": ""})
            ]
    return sorted(seen)


def licences(name: str) -> set[str]:
    """Return the licences of a distribution as SPDX ids, as far as its metadata contain them."""
    metadata: Any = distribution(name).metadata
    text = metadata.get("License-Expression") or metadata.get("License") or ""
    if len(text) > 80 or not text:
        classifiers = " ".join(each for each in metadata.get_all("Classifier", []) if each.startswith("License"))
        text = "MIT" if "MIT License" in classifiers else classifiers
    return set(re.split(r" (?:AND|OR) ", text))


@pytest.mark.parametrize("name", core())
def test_core_dependencies_have_permissive_licences(name: str) -> None:
    assert licences(name) <= PERMISSIVE | EXCEPTIONS.get(name, set())


@pytest.mark.parametrize("name", core())
def test_core_dependencies_have_wheels_without_compilation(name: str) -> None:
    wheel = distribution(name).read_text("WHEEL")
    assert wheel, f"{name} did not come as a wheel"
    tags = [tag for line in wheel.splitlines() if line.startswith("Tag: ") for tag in parse_tag(line[5:])]
    # A package compiled on this machine has the plain platform tag.
    assert any(re.match(r"any$|manylinux|musllinux|macosx", tag.platform) for tag in tags), f"{name}: {tags}"


FINE = {"name": "twisted", "version": "26.10.0", "vulns": []}
OURS = {"name": "fyrehose-twisted", "skip_reason": "it is not on PyPI"}
SILENT = {"name": "numpy", "skip_reason": "Dependency not found on PyPI"}
BAD = {"name": "idna", "version": "3.6", "vulns": [{"id": "PYSEC-2024-60", "fix_versions": ["3.7"]}]}


class TestTheAudit:
    """Exit status of ``make audit`` for reports of pip-audit."""

    @pytest.mark.parametrize(
        ("dependencies", "status", "last"),
        [
            ([FINE, OURS], 0, "make audit: pypi knows of no vulnerability in 1 packages."),
            (
                [FINE, OURS, SILENT],
                3,
                "make audit: pypi says nothing of 1 of 2 packages (numpy), so it is not known whether they have"
                " vulnerabilities.",
            ),
            ([OURS], 3, "make audit: pypi says nothing of 0 of 0 packages (), so it is not known whether they have"),
            ([FINE, BAD, SILENT], 1, "make audit: 1 vulnerabilities are known; of 1 packages nothing is known."),
        ],
    )
    def test_audit_fails_without_a_complete_report(
        self, dependencies: list[Any], status: int, last: str, tmp_path: Path
    ) -> None:
        report = tmp_path / "report.json"
        report.write_text(json.dumps({"dependencies": dependencies, "fixes": []}))
        command = [sys.executable, ROOT / "tests" / "packaging" / "audit.py", report]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (status, "")
        assert done.stdout.splitlines()[-1].startswith(last)
        assert ("idna 3.6: PYSEC-2024-60, fixed in 3.7" in done.stdout) == (status == 1)
