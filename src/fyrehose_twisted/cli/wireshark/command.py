"""Command ``fyrehose wireshark``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

PLUGIN = Path(__file__).with_name("fyrehose.lua")
"""Dissectors for Wireshark and tshark."""

DESCRIPTION = "Print the path of the dissectors for Wireshark and tshark, or install them."
EPILOG = (
    "Without --install, give the path to tshark or Wireshark for one run: -X lua_script:PATH. Installed, the dissectors"
    " are loaded at each start of Wireshark. After an update of this package, install them again."
)


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed options have :func:`run` as their ``run``.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "wireshark", help=DESCRIPTION, description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument(
        "--install", action="store_true", help="copy the dissectors into the directory for your own plugins"
    )
    parser.add_argument(
        "-d",
        "--directory",
        type=Path,
        metavar="DIR",
        help="with --install, the directory, which Wireshark lists under Help, About, Folders [%(default)s]",
        default=plugin_directory(),
    )
    parser.set_defaults(run=run)
    return parser


def plugin_directory() -> Path:
    """Return the directory in which Wireshark looks for the user's own plugins."""
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home()), "Wireshark", "plugins")
    return Path("~", ".local", "lib", "wireshark", "plugins")


def run(options: argparse.Namespace) -> int:
    """Print the path of the dissectors, which may be a copy, and return the exit status."""
    from fyrehose_twisted.process.terminal import print_error

    if not options.install:
        print(PLUGIN)
        return 0
    try:
        directory = options.directory.expanduser()
        directory.mkdir(parents=True, exist_ok=True)
        print(shutil.copyfile(PLUGIN, directory / PLUGIN.name))
    except RuntimeError as error:
        return print_error(f"the home directory is unknown: {error}; give --directory DIR")
    except OSError as error:
        return print_error(f"{error.filename}: {error.strerror}")
    return 0
