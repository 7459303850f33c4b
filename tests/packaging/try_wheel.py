"""Test of a compiled wheel in a fresh environment: ``python try_wheel.py WHEEL``.

For a DIRECTORY, it tries the newest wheel there that is for the interpreter which runs this program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROGRAM = """
import sys
from fyrehose_twisted.fyrehose.node.backbone import backbone
from fyrehose_twisted.fyrehose.node.client import client
from fyrehose_twisted.parcels.node import node
for module in (backbone, client, node):
    assert module.__file__.endswith(".so"), f"{module.__file__} is not compiled"
"""


def newest_wheel(directory: Path) -> Path:
    """Return the newest compiled wheel in a directory that is for this interpreter."""
    # The tag of the interface ends in t for a free-threaded interpreter.
    version = "cp{}{}".format(*sys.version_info)
    wheels = directory.glob(f"fyrehose_twisted-*-{version}-{version}{sys.abiflags}-*.whl")
    wheel = max(wheels, key=lambda path: path.stat().st_mtime, default=None)
    if wheel is None:
        raise SystemExit(f"{directory} has no compiled wheel for {sys.executable}")
    return wheel


def main(place: str) -> None:
    """Install the wheel with its requirements, and run commands of each kind from outside of the checkout."""
    wheel = newest_wheel(Path(place)) if Path(place).is_dir() else Path(place)
    if wheel.name.endswith("-none-any.whl"):
        raise SystemExit(f"{wheel} is not compiled")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FYREHOSE"))}
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        programs = Path(directory) / "bin"
        for command in (
            ("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel.resolve())),
            ("python", "-c", PROGRAM),
            ("twistd", "fyrehose-backbone", "--help"),
            ("fyrehose", "simulate", "fyrehose.storm", "--seed", "1"),
            ("fyrehose", "simulate", "parcels.calm", "--seed", "1"),
        ):
            print(" ".join(command[:4]), flush=True)
            subprocess.run(
                [programs / command[0], *command[1:]],
                cwd=directory,
                env=environment,
                stdout=subprocess.DEVNULL,
                check=True,
            )
    print(f"{wheel} works")


if __name__ == "__main__":
    main(*sys.argv[1:])
