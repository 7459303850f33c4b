"""Command ``fyrehose doctor``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

# Checks are imported on demand, because `fyrehose --help` imports this module.

DESCRIPTION = "Check that this machine meets the needs of the services, and advise changes."
EPILOG = (
    "Exit status: 1 if something is wrong, so that a service would fail or lose data. Nothing is changed: the command"
    " writes a temporary file to each DIR and tries the ports on loopback. To test a backbone, use fyrehose ping."
)


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed options have :func:`run` as their ``run``.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor", help=DESCRIPTION, description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument(
        "-d",
        "--directory",
        action="append",
        type=Path,
        metavar="DIR",
        help="directory of journals or state files, existing or planned (repeatable) [current directory]",
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects: check, level, found, advice")
    parser.add_argument("--strict", action="store_true", help="exit with 1 also for findings to look at")
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run all checks, print the findings, and return the exit status."""
    import json

    from fyrehose_twisted.cli.doctor.checks import run_checks
    from fyrehose_twisted.cli.doctor.finding import exit_status, format_findings

    findings = list(run_checks(options.directory or [Path()]))
    if options.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        print(*format_findings(findings), sep="\n")
    return exit_status(findings, strict=options.strict)
