"""HTML report on the output of the other commands: ``fyrehose-pipeline report``."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fyrehose_twisted.errors import ConfigurationError

DESCRIPTION = "Write an HTML report with plots from the output directories of verify and run."


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser("report", help=DESCRIPTION, description=DESCRIPTION)
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="output directory of verify or run")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="report [%(default)s]")
    parser.add_argument("--title", default="What the journals hold", metavar="TEXT", help="page title [%(default)s]")
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Write the report and return the exit status.

    :raises ConfigurationError: if there are no tables, the page cannot be written to ``--out``, or plotly is missing.
    """
    from fyrehose_twisted.spark.report.tables import find_tables
    from fyrehose_twisted.spark.session import spark_session

    # Check everything before starting Spark, which takes seconds.
    tables = find_tables(options.directories)
    _require_place(options.out)
    _require_plotly()
    from fyrehose_twisted.spark.report.page import write_page
    from fyrehose_twisted.spark.report.page_data import load_page_data

    with spark_session("fyrehose report", options) as spark:
        found = load_page_data(spark, tables)
    write_page(found, options.out, options.title, datetime.now(UTC))
    if not options.quiet:
        print(options.out)
    return 0


def _require_place(out: Path) -> None:
    if out.is_dir():
        raise ConfigurationError(f"--out {out} is a directory: name a file in it")
    if not out.parent.is_dir():
        raise ConfigurationError(f"--out {out}: there is no directory {out.parent}: create it first")


def _require_plotly() -> None:
    try:
        import plotly.graph_objects  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"plots require plotly ({error}): run pip install 'fyrehose_twisted[report]'"
        ) from None
