"""``fyrehose-experiments report``: show in one page what a sweep has found."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fyrehose_twisted.errors import ConfigurationError

DESCRIPTION = "Write one HTML page with plots and tables of what sweep has written. It needs no Spark."


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report", help="Show in one page what a sweep has found.", description=DESCRIPTION
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="what sweep wrote to")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("sweep.html"), metavar="FILE", help="the page [%(default)s]"
    )
    parser.add_argument("--title", default="", metavar="TEXT", help="its title [the name of DIR]")
    parser.add_argument("--x", default="", metavar="SETTING", help="lines go over it [n, or what has more values]")
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME", help="show this metric, instead of the usual ones"
    )
    parser.add_argument(
        "--where", action="append", default=[], metavar="K=V", help="show only networks whose setting K is V"
    )
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Write the page, and return the exit status.

    :raises ConfigurationError: if there is no sweep, no place for the page, or no plotly.
    :raises OperationalError: if the table cannot be read.
    """
    # Before anything is done that takes long.
    _require_output(options.out)
    _require_module("plotly.graph_objects", "report")
    _require_module("pyarrow", "spark")
    from fyrehose_twisted.experiments.sweep.page import write_page
    from fyrehose_twisted.experiments.sweep.results import SweepResults
    from fyrehose_twisted.experiments.sweep.sweep_data import load_sweep_data

    results = SweepResults(options.directory)
    found = load_sweep_data(results, axis=options.x, metrics=options.metric, where=options.where)
    title = options.title or f"Sweep {options.directory.resolve().name}"
    write_page(found, options.out, title, datetime.now(UTC))
    print(options.out)
    return 0


def _require_output(out: Path) -> None:
    if out.is_dir():
        raise ConfigurationError(f"--out {out} is a directory; name a file in it")
    if not out.parent.is_dir():
        raise ConfigurationError(f"--out {out}: there is no directory {out.parent}; make it first")


def _require_module(module: str, extra: str) -> None:
    try:
        __import__(module)
    except ImportError as error:
        raise ConfigurationError(
            f"a report needs {module.partition('.')[0]}, and: {error}."
            f" Install it with: pip install 'fyrehose_twisted[{extra}]'"
        ) from None
