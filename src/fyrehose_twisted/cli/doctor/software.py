"""Checks of Python, packages, extras and Java."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module, metadata
from typing import NamedTuple

from fyrehose_twisted.cli.doctor.finding import DoctorFinding, ok, unknown, warn, wrong
from fyrehose_twisted.spark.java import MAX_VERSION, MIN_VERSION, JavaRuntime, find_javas

PYTHON, PACKAGES, EXTRAS, JAVA = "python", "packages", "extras", "java"

OLDEST_PYTHON = (3, 11)
DISTRIBUTION = "fyrehose_twisted"
EXTRA_NAMES = ("keys", "parquet", "query", "report", "spark", "web")
"""Extras for users; the others are for developers of the library."""

_OPERATORS: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda have, want: have >= want,
    "<": lambda have, want: have < want,
}


class Requirement(NamedTuple):
    """A requirement of the library.

    :ivar bounds: such as ``(">=", "24.11")``, without those of unknown operators.
    :ivar extra: extra that requires it, ``None`` for a requirement of the library itself.
    """

    name: str
    bounds: tuple[tuple[str, str], ...]
    extra: str | None

    def __str__(self) -> str:
        return self.name + ",".join(f"{operator}{version}" for operator, version in self.bounds)

    def met_by(self, version: str | None) -> bool:
        """Return whether a version meets the requirement; ``None`` is a missing package."""
        if version is None:
            return False
        have = parse_release(version)
        return all(_OPERATORS[operator](have, parse_release(bound)) for operator, bound in self.bounds)


def parse_release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version without trailing zeros: ``24.11.0rc1`` is (24, 11)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def parse_requirement(text: str) -> Requirement | None:
    """Parse a requirement such as ``pyspark[sql]<5,>=4.2; extra == "spark"``; return ``None`` if invalid."""
    wanted, _, marker = text.partition(";")
    match = re.match(r"\s*([\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?([^)]*)", wanted)
    if match is None:
        return None
    bounds = re.findall(r"(>=|<)\s*([\w.]+)", match[2].replace("<=", ""))
    extra = re.search(r"""extra\s*==\s*["']([\w.-]+)""", marker)
    return Requirement(match[1], tuple(sorted(bounds, reverse=True)), extra and extra[1])


def assess_python(version: tuple[int, ...], said: str) -> DoctorFinding:
    """Assess the version of Python.

    :param said: description for the finding.
    """
    if version < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return wrong(PYTHON, f"{said} is too old", f"install Python {wanted} or newer")
    return ok(PYTHON, said)


def assess_packages(
    needed: Sequence[Requirement], versions: Mapping[str, str], broken: Mapping[str, str]
) -> DoctorFinding:
    """Assess the packages that every service requires.

    :param versions: versions of installed packages, by name.
    :param broken: import errors of packages, by name.
    """
    bad = [
        f"{need} is required, {versions.get(need.name, 'none')} is installed"
        for need in needed
        if not need.met_by(versions.get(need.name))
    ]
    bad += [f"{name} {versions.get(name, '')} cannot be imported ({why})" for name, why in broken.items()]
    if bad:
        return wrong(PACKAGES, "; ".join(bad), f"pip install --upgrade {DISTRIBUTION}")
    return ok(PACKAGES, ", ".join(f"{need.name} {versions[need.name]}" for need in needed))


def assess_extras(needed: Sequence[Requirement], versions: Mapping[str, str]) -> DoctorFinding:
    """Assess the extras, all of which are optional."""
    usable, missing, names = [], [], []
    for extra in EXTRA_NAMES:
        wanting = [need for need in needed if need.extra == extra and not need.met_by(versions.get(need.name))]
        if not wanting:
            usable.append(extra)
        elif any(need.name in versions for need in wanting):
            old = ", ".join(f"{need.name} {versions[need.name]}" for need in wanting if need.name in versions)
            missing.append(f"{extra} (cannot use {old})")
            names.append(extra)
        else:
            missing.append(extra)
            names.append(extra)
    found = f"usable: {', '.join(usable) or 'none'}"
    if not missing:
        return ok(EXTRAS, found)
    advice = f"for those that you need: pip install '{DISTRIBUTION}[{','.join(names)}]'"
    return ok(EXTRAS, f"{found}; not installed: {', '.join(missing)}", advice)


def assess_java(spark: bool, found: Iterable[JavaRuntime]) -> DoctorFinding:
    """Assess the Java runtimes for Spark.

    :param spark: whether the extra is usable.
    :param found: runtimes in order of preference; Spark uses the first suitable one.
    """
    if not spark:
        return ok(JAVA, "not needed: the extra spark is not usable here")
    misfits = []
    for java in found:
        if java.version is not None and MIN_VERSION <= java.version <= MAX_VERSION:
            return ok(JAVA, f"Java {java.version} of {java.source}, {java.program}")
        what = "does not start" if java.version is None else f"is Java {java.version}"
        misfits.append(f"{java.program} of {java.source} {what}")
    said = f"no Java {MIN_VERSION} to {MAX_VERSION} for Spark: {'; '.join(misfits) or 'none found'}"
    return warn(JAVA, said, f"install Java {MIN_VERSION}, or one from PyPI: pip install '{DISTRIBUTION}[spark]'")


def check_software() -> list[DoctorFinding]:
    """Check Python, required packages, extras, and Java if Spark is installed."""
    said = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.release()}"
    python = assess_python(sys.version_info[:3], said)
    try:
        texts = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        advice = f"install it instead of using PYTHONPATH: pip install {DISTRIBUTION}"
        reason = f"{DISTRIBUTION} is not installed here"
        return [python, *(unknown(check, reason, advice) for check in (PACKAGES, EXTRAS, JAVA))]
    needed = [need for need in map(parse_requirement, texts) if need is not None]
    versions = _versions({need.name for need in needed})
    always = [need for need in needed if need.extra is None]
    extras = [need for need in needed if need.extra is not None]
    spark = all(need.met_by(versions.get(need.name)) for need in extras if need.extra == "spark")
    return [
        python,
        assess_packages(always, versions, _find_broken(need.name for need in always if need.name in versions)),
        assess_extras(extras, versions),
        assess_java(spark, find_javas()),
    ]


def _versions(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if version:  # A broken package may have no version.
            found[name] = version
    return found


def _find_broken(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            import_module(name.replace("-", "_").lower())
        except Exception as error:  # Whatever a package raises, it cannot be used.
            found[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    return found
