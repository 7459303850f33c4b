"""The ``tree-experiment`` command: trees of streams in a simulated network, from a shell.

    $ tree-experiment --nodes 1000 --keys 4 --subscribers 50 --kill 0.1
    kleinberg(n=1000, degree=10.0, seed=1): 1,000 nodes, 5,000 links

               seconds  running  subscribers  members  roots a key  reach
    grown         76.6    1,000          200      554         1.00  1.000
    ...
    roots_per_key                       1  roots of a stream; with one, it is one tree
    ...
    200 of 200 subscriptions to 4 keys; 1 roots a key; 100 % of the subscribers in the largest tree; ...

With ``--csv`` or ``--json`` there is only that on standard output, and the last sentence on standard error. Equal
options have equal output.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import Field, fields
from math import inf
from os.path import realpath
from tempfile import TemporaryFile
from time import monotonic
from typing import Any, NoReturn

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.experiments.options import (
    DEFAULT_DEGREE,
    DEFAULT_NODES,
    DEFAULT_ROUNDS,
    TOPOLOGIES,
    build_topology,
    parse_latency,
    parse_number,
    parse_policy,
    parse_whole_number,
)
from fyrehose_twisted.experiments.report.page import MAX_PAGE_NODES, write_page
from fyrehose_twisted.experiments.report.svg import draw
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.experiments.report.trial_report import TrialReport
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.experiment import LATENCY, TreeExperiment
from fyrehose_twisted.experiments.trials.trial import Trial, TrialPlan
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.wording import pluralize

EXIT_FAILED = 1
"""Exit status if a tree is none, or the network did not become quiet."""
EXIT_USAGE = 2
"""Exit status if it cannot be run like that."""

DESCRIPTION = (
    "Let the trees of some streams grow in a simulated network, publish packets, let nodes die, and say what came of"
    " it. Nodes are those that run over real links. Equal options have equal outcomes."
)
EPILOG = (
    "Exit status: 0 if the trees hold at the end, 1 if one does not or the network does not become quiet, 2 if an"
    " option makes no sense. Where messages are lost, trees are not checked."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"tree-experiment: {message}; see tree-experiment --help\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; see :data:`EPILOG` for the status."""
    if sys.stderr is None:  # Closed by whoever started us; print() would take standard output instead.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    options = _parser().parse_args(arguments)
    try:
        status = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = _print_error("interrupted", EXIT_FAILED)
    except BrokenPipeError:
        # Nobody reads what we print any more, and Python would say so again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = EXIT_FAILED
    except ConfigurationError as error:
        status = _print_error(error, EXIT_USAGE)
    except FyrehoseError as error:
        status = _print_error(error, EXIT_FAILED)
    except OSError as error:
        status = _print_error(f"{error.filename or 'output'}: {error.strerror or error}", EXIT_USAGE)
    except MemoryError:
        status = _print_error("there is not enough memory for so large a network; take fewer --nodes", EXIT_USAGE)
    sys.exit(status)


def _print_error(problem: object, status: int) -> int:
    print(f"tree-experiment: {problem}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tree-experiment", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False)
    _add_network(parser.add_argument_group("the network"))
    _add_plan(parser.add_argument_group("what is done in it, in this order"))
    output = parser.add_argument_group("what comes out")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print a heading and a row of CSV")
    form.add_argument("--json", action="store_true", help="print a JSON object")
    add = output.add_argument
    add("--no-heading", action="store_true", help="print no heading with --csv, for the second run and further ones")
    add("--trace", metavar="FILE", help="write what happens, as JSON lines")
    add("--page", metavar="FILE", help="write a page that shows the trees growing, breaking and healing")
    add("--svg", metavar="FILE", help="draw the tree of the first stream, as it is at the end")
    return parser


def _add_network(group: Any) -> None:
    add = group.add_argument
    add(
        "--topology",
        nargs="+",
        default=["kleinberg"],
        metavar=("NAME", "FILE"),
        help=f"{', '.join(TOPOLOGIES[:-1])}, or file FILE with a link a line; swapped is kleinberg where nodes had to"
        " find their locations by swapping [kleinberg]",
    )
    add("--nodes", type=parse_whole_number, metavar="N", help=f"how many; a file says it itself [{DEFAULT_NODES}]")
    add("--degree", type=parse_number, metavar="D", help=f"links of a node, on average [{DEFAULT_DEGREE:g}]")
    add("--lattice", action="store_true", help="link each node to its two neighbours on the ring besides")
    add(
        "--rounds",
        type=parse_whole_number,
        metavar="N",
        help=f"swaps that each node of swapped tried, on average [{DEFAULT_ROUNDS}]",
    )
    add(
        "--latency",
        type=parse_latency,
        default=LATENCY,
        metavar="S",
        help=f"seconds from a node to the next, or a span of which they are drawn, such as 0.02:0.2 [{LATENCY:g}]",
    )
    add("--loss", type=parse_number, default=0.0, metavar="P", help="chance that a message is lost for good [0]")
    add("--seed", type=parse_whole_number, default=1, metavar="N", help="of all that is random [%(default)s]")


def _add_plan(group: Any) -> None:
    add = group.add_argument
    add("--keys", type=parse_whole_number, default=1, metavar="K", help="streams [%(default)s]")
    add(
        "--subscribers",
        type=parse_whole_number,
        metavar="S",
        help="nodes that subscribe to each [100, or all if they are fewer]",
    )
    add("--at-once", action="store_true", help="let all subscribe at one moment; else each waits for the one before")
    add(
        "--publish",
        type=parse_whole_number,
        default=1,
        metavar="N",
        help="packets of each stream: when trees have grown, again when they have healed, and again while nodes come"
        " and go [%(default)s]",
    )
    add(
        "--kill", type=parse_number, default=0.0, metavar="SHARE", help="kill so many of the nodes at once, such as 0.1"
    )
    add(
        "--churn",
        type=parse_number,
        default=inf,
        metavar="S",
        help="let nodes come and go; each lives S seconds on average",
    )
    add("--births", type=parse_number, metavar="RATE", help="nodes that come back in a second [as many as die]")
    add(
        "--swapping",
        type=parse_number,
        default=0.0,
        metavar="RATE",
        help="swaps of locations that are tried in a second",
    )
    add(
        "--duration",
        type=parse_number,
        default=600.0,
        metavar="S",
        help="seconds of --churn and --swapping [%(default)g]",
    )
    add(
        "--settle",
        type=parse_number,
        default=120.0,
        metavar="S",
        help="seconds to become quiet in, with --loss [%(default)g]",
    )
    add(
        "--policy",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help=f"how nodes route, wait and repair: {', '.join(map(_with_default, fields(Policy)))}",
    )


def _with_default(field: Field[Any]) -> str:
    default = {True: "yes", False: "no"}[field.default] if isinstance(field.default, bool) else field.default
    return f"{field.name} [{default}]"


def _run(options: argparse.Namespace) -> int:
    policy = parse_policy(options.policy)
    files = _output_files(options)
    if not options.churn:
        raise ConfigurationError("--churn 0: nodes live for more than 0 seconds")
    topology = build_topology(options)

    _check_page(options, topology)
    for file in files:
        # Not only when all is done.
        with open(file, "a", encoding="utf-8"):
            pass
    course = TrialPlan(
        options.keys,
        min(100, topology.n) if options.subscribers is None else options.subscribers,
        options.at_once,
        options.publish,
        options.kill,
        options.churn,
        options.births,
        options.swapping,
        options.duration,
        options.settle,
    )
    experiment = TreeExperiment(topology, policy, latency=options.latency, loss=options.loss, seed=options.seed)
    began = monotonic()
    with ExitStack() as stack:
        trace = _open_trace(options, stack)
        bar = stack.enter_context(ProgressBar(total=course.steps, leave=False, unit=" steps"))

        def passed(what: str, steps: int) -> None:
            bar.set_description(what, refresh=False)
            bar.update(steps)

        trial = Trial(experiment, course, passed)
        if trace is not None:
            experiment.trace(trace)
        trial.run()
        bar.close()
        if trace is not None:
            _write_drawings(options, trial.keys[0], trace)
    account = TrialReport(trial)
    if options.csv:
        account.write_csv(sys.stdout, heading=not options.no_heading)
    elif options.json:
        account.write_json(sys.stdout)
    else:
        print(*account.lines(), sep="\n")
    sys.stdout.flush()
    print(account.summary(), file=sys.stderr if options.csv or options.json else sys.stdout)
    if sys.stderr.isatty():
        took = monotonic() - began
        rate = experiment.messages / max(took, 1e-9)
        print(
            f"tree-experiment: {pluralize(experiment.messages, 'message')} in {took:.1f} s, {rate:,.0f} a second",
            file=sys.stderr,
        )
    return 0 if trial.violation is None else EXIT_FAILED


def _output_files(options: argparse.Namespace) -> list[str]:
    named = [file for file in (options.trace, options.page, options.svg) if file is not None]
    if len({realpath(file) for file in named}) < len(named):
        raise ConfigurationError("--trace, --page and --svg: two of them name the same file; give each one of its own")
    if "-" in named:
        raise ConfigurationError("--trace, --page and --svg want files; - is none")
    if options.no_heading and not options.csv:
        raise ConfigurationError("--no-heading means nothing without --csv")
    return named


def _open_trace(options: argparse.Namespace, stack: ExitStack) -> Any:
    if options.trace is not None:
        return stack.enter_context(open(options.trace, "w+", encoding="utf-8"))
    if options.page is not None or options.svg is not None:
        return stack.enter_context(TemporaryFile("w+", encoding="utf-8"))
    return None


def _check_page(options: argparse.Namespace, topology: Topology) -> None:
    if options.page is not None and topology.n > MAX_PAGE_NODES:
        raise ConfigurationError(
            f"--page {options.page}: a page can show {MAX_PAGE_NODES:,} nodes, and there are {topology.n:,}; "
            "take --svg,"
            " or fewer --nodes"
        )


def _write_drawings(options: argparse.Namespace, key: bytes, trace: Any) -> None:
    if options.page is None and options.svg is None:
        return
    trace.seek(0)
    recording = Recording.read(trace)
    if options.page is not None:
        with open(options.page, "w", encoding="utf-8") as file:
            write_page(recording, key, file)
    if options.svg is not None:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(draw(recording, key, recording.finish))
