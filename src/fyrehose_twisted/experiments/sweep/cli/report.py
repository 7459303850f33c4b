"""``fyrehose-experiments report``: page with the results of a sweep."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fyrehose_twisted.errors import ConfigurationError

DESCRIPTION = "Write an HTML page with plots and tables of the results of a sweep. Requires no Spark."


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report", help="Write a page with the results of a sweep.", description=DESCRIPTION
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="output directory of the sweep")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("sweep.html"), metavar="FILE", help="output file [%(default)s]"
    )
    parser.add_argument("--title", default="", metavar="TEXT", help="title of the page [the name of DIR]")
    parser.add_argument(
        "--x", default="", metavar="SETTING", help="setting of the horizontal axis [n, or one with more values]"
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="show this metric instead of the default ones (repeatable)",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="K=V",
        help="show only networks whose setting K is V (repeatable)",
    )
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Write the page and return the exit status.

    :raises ConfigurationError: if there is no sweep, the output path is invalid, or a package is missing.
    :raises OperationalError: if the table cannot be read.
    """
    # Checked before any slow step.
    _require_output(options.out)
    _require_module("plotly.graph_objects", "report")
    _require_module("pyarrow", "spark")
    from fyrehose_twisted.experiments.sweep.page import write_page
    from fyrehose_twisted.experiments.sweep.results import SweepResults
    from fyrehose_twisted.experiments.sweep.sweep_data import load_sweep_data

    results = SweepResults(options.directory)
    data = load_sweep_data(results, axis=options.x, metrics=options.metric, where=options.where)
    title = options.title or f"Sweep {options.directory.resolve().name}"
    write_page(data, options.out, title, datetime.now(UTC))
    print(options.out)
    return 0


def _require_output(out: Path) -> None:
    if out.is_dir():
        raise ConfigurationError(f"--out {out} is a directory; give a file name")
    if not out.parent.is_dir():
        raise ConfigurationError(f"--out {out}: there is no directory {out.parent}; create it first")


def _require_module(module: str, extra: str) -> None:
    try:
        __import__(module)
    except ImportError as error:
        raise ConfigurationError(
            f"a report needs {module.partition('.')[0]}, and: {error}."
            f" Install it with: pip install 'fyrehose_twisted[{extra}]'"
        ) from None
