"""Command ``fyrehose doctor``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

# The checks are imported on use: `fyrehose --help` imports this module too.

DESCRIPTION = "Check whether this machine meets the needs of the services, and advise what to change."
EPILOG = (
    "The exit status is 1 if a finding is wrong: a service will fail or lose data. Nothing is changed: temporary files"
    " in each DIR are removed, and ports are bound on loopback only. To check that a backbone answers, use fyrehose"
    " ping."
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
        help="directory for journals and state files (repeatable) [current directory]",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects: check, level, found, advice")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 on warnings too")
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
