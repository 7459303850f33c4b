"""Command ``fyrehose doctor``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

# What looks is imported when it is needed: this module is imported for `fyrehose --help` too.

DESCRIPTION = "Look at what the services need of this machine, and say what to change."
EPILOG = (
    "The exit status is 1 if something is wrong: a service will fail or lose data. Nothing is changed; each DIR is"
    " written to for a moment, and the ports are tried on loopback. Whether a backbone answers, fyrehose ping tells."
)


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    What is parsed has :func:`run` as its ``run``.
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
        help="where journals and state files lie, or shall (repeatable) [where you are]",
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects: check, level, found, advice")
    parser.add_argument("--strict", action="store_true", help="exit with 1 also if something is to be looked at")
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
