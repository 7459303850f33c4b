"""Modules that mypyc compiles, and the pure ones that it does not, each with its reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setuptools import Extension

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = "fyrehose_twisted"

GROUPS = {
    "shared": (
        "consensus",
        "datagrams",
        "driver",
        "host_addresses",
        "length_frames",
        "lru_set",
        "net.gso",
        "ranges",
        "record",
        "repeats",
        "report_limiter",
        "token_bucket",
    ),
    "fyrehose": ("fyrehose.node", "fyrehose.wire"),
    "hydra": (
        "hydra.node",
        "hydra.transports.notice_stream",
        "hydra.transports.udp.datagrams",
        "hydra.transports.udp.demux",
        "hydra.transports.udp.receive_buffer",
        "hydra.transports.udp.send_buffer",
        "hydra.transports.udp.session",
        "hydra.wire",
    ),
    "freenet": ("experiments.simulated_network", "freenet.node", "freenet.wire"),
    "parcels": ("parcels.node", "parcels.wire"),
    "simulator": ("sim",),
}
"""Modules, and packages with all their modules, by the shared library that they are compiled into."""

_TUPLES = "named tuples, which gain nothing and lose the types of their fields"
_AUTOMAT = "Automat reads the signatures of its functions"
_SUBCLASSED = "applications and tests subclass its classes"

INTERPRETED = {
    "consensus.messages": _TUPLES,
    "freenet.node.status": _TUPLES,
    "freenet.wire.codec": "it checks values whose types annotations promise, and mypyc would be first",
    "freenet.wire.messages": _TUPLES,
    "fyrehose.wire.member_messages": _TUPLES,
    "hydra.node.roles": _AUTOMAT,
    "hydra.node.status": _TUPLES,
    "hydra.wire.messages": _TUPLES,
    "parcels.node.modes": _AUTOMAT,
    "parcels.node.status": _TUPLES,
    "parcels.wire.messages": _TUPLES,
    "parcels.wire.serde_values": "a subclass of list",
    "sim.clock": "its calls are a subclass of Twisted's",
    "sim.fault_generators": "called once a run",
    "sim.faults": _SUBCLASSED,
    "sim.invariants": _SUBCLASSED,
    "sim.link": "faults are parsed by the types of its fields",
    "sim.observer": _SUBCLASSED,
    "sim.pytest_plugin": "a plugin of pytest",
    "sim.runs": "processes and files",
    "sim.scenario": _SUBCLASSED,
    "sim.trace": "an observer, and its base class is interpreted",
}
"""Modules and packages among these that stay interpreted, with the reason."""


def compiled_files(group: str) -> Iterator[Path]:
    """Yield the files of a group, relative to ``src``."""
    for name in GROUPS[group]:
        path = SOURCE / PACKAGE / name.replace(".", "/")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            # The modules of packages only export names, which is done lazily.
            if file.name != "__init__.py" and not _is_interpreted(module_name(file)):
                yield file.relative_to(SOURCE)


def module_name(file: Path) -> str:
    """Return the name of the module in a file, relative to the package."""
    return ".".join(file.with_suffix("").relative_to(SOURCE / PACKAGE).parts)


def _is_interpreted(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in INTERPRETED)


def remove_stale_results() -> None:
    """Remove the files of earlier builds that have no source, or none that is compiled any more."""
    known = {file.with_suffix("") for group in GROUPS for file in compiled_files(group)}
    for library in (ROOT / "build").glob("lib*"):
        for path in library.glob(f"{PACKAGE}/**/*"):
            place = path.relative_to(library)
            module = place.with_name(place.name.partition(".")[0])
            if module not in known if path.suffix == ".so" else not (SOURCE / place).exists():
                path.unlink()


def extensions() -> list[Extension]:
    """Translate the modules to C; return the extensions to build."""
    from mypyc.build import mypycify

    remove_stale_results()
    groups = [([str(file) for file in compiled_files(group)], f"{PACKAGE}_{group}") for group in GROUPS]
    options = [
        f"--config-file={ROOT / 'setup.cfg'}",
        # With mypy's cache, mypyc 2.4 sometimes fails on what changed in between.
        f"--cache-dir={os.devnull}",
        # `make test` checks the types strictly, with everything installed.
        "--ignore-missing-imports",
        "--no-warn-unused-ignores",
    ]
    before = Path.cwd()
    # Tracebacks name files relative to here, and Python finds the lines of those that are relative to sys.path.
    os.chdir(SOURCE)
    try:
        made = mypycify(
            [*options, *(file for files, _ in groups for file in files)],
            separate=groups,
            target_dir=str(ROOT / "build" / "mypyc"),
            opt_level=os.environ.get("FYREHOSE_OPTIMIZE", "3"),
            debug_level="0",
        )
    finally:
        os.chdir(before)
    for extension in made:
        extension.sources = [os.path.relpath(source, ROOT) for source in extension.sources]
    return made
