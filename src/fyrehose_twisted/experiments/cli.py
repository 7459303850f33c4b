"""The ``tree-experiment`` command: trees of streams in a simulated network.

    $ tree-experiment --nodes 1000 --keys 4 --subscribers 50 --kill 0.1
    kleinberg(n=1000, degree=10.0, seed=1): 1,000 nodes, 5,000 links

               seconds  running  subscribers  members  roots a key  reach
    grown         76.6    1,000          200      554         1.00  1.000
    ...
    roots_per_key                       1  roots of a stream; with one, it is one tree
    ...
    200 of 200 subscriptions to 4 keys; 1 roots a key; 100 % of the subscribers in the largest tree; ...

With ``--csv`` or ``--json``, standard output has only the data, and the summary goes to standard error. Equal options
produce equal output.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import Field, fields
from math import inf
from os.path import realpath
from tempfile import TemporaryFile
from time import monotonic
from typing import Any

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.experiments.growth.link_policies import LINK_POLICIES
from fyrehose_twisted.experiments.options import (
    DEFAULT_DEGREE,
    DEFAULT_LINKS,
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
from fyrehose_twisted.experiments.report.replica_report import ReplicaReport
from fyrehose_twisted.experiments.report.svg import draw
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.experiments.report.trial_report import TrialReport, write_rows
from fyrehose_twisted.experiments.topologies.latencies import LinkLatencies
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.experiment import LATENCY, TreeExperiment
from fyrehose_twisted.experiments.trials.trial import Trial, TrialPlan
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.process.program import ProgramParser, run_program
from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.wording import pluralize

EVERY = 10.0
"""Default of the simulated seconds between two rows of a series."""
EXIT_FAILED = 1
"""Exit status if a tree is invalid or the network did not become quiet."""
EXIT_USAGE = 2
"""Exit status of a usage error."""

MAX_REPLICAS = 10_000
"""Maximum number of networks of one command."""

OUTPUTS = "--trace, --page, --svg, --series and --by-node"
DESCRIPTION = (
    "Grow the trees of some streams in a simulated network, publish packets, kill nodes, and report the results. The"
    " nodes run the same code as over real links. Equal options produce equal results."
)
EPILOG = (
    "Exit status: 0 if all trees are valid at the end, 1 if one is not or the network does not become quiet, 2 for a"
    " usage error. With --loss, trees are not checked."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; see :data:`EPILOG` for the status."""
    run_program(_parser(), arguments, _describe_error, EXIT_FAILED)


def _describe_error(error: BaseException) -> tuple[str, int] | None:
    match error:
        case KeyboardInterrupt():
            return "interrupted", EXIT_FAILED
        case FyrehoseError():
            return str(error), EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_FAILED
        case OSError():
            return f"{error.filename or 'output'}: {error.strerror or error}", EXIT_USAGE
        case MemoryError():
            return "not enough memory for a network of this size; use fewer --nodes", EXIT_USAGE
    return None


def _parser() -> argparse.ArgumentParser:
    parser = ProgramParser(prog="tree-experiment", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False)
    parser.set_defaults(run=_run)
    _add_network(parser.add_argument_group("network"))
    _add_plan(parser.add_argument_group("trial, in this order"))
    output = parser.add_argument_group("output")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print a CSV heading and row")
    form.add_argument("--json", action="store_true", help="print a JSON object")
    add = output.add_argument
    add("--no-heading", action="store_true", help="omit the heading of --csv, for all runs after the first")
    add("--trace", metavar="FILE", help="write all events as JSON lines")
    add("--page", metavar="FILE", help="write a page that replays how the trees grow, break and heal")
    add("--svg", metavar="FILE", help="draw the tree of the first stream at the end")
    add("--series", metavar="FILE", help="write the metrics over time as CSV, a row each --every seconds")
    add(
        "--every",
        type=parse_number,
        default=EVERY,
        metavar="S",
        help="simulated seconds that a row of --series covers [%(default)g]",
    )
    add("--by-node", metavar="FILE", help="write the metrics of each node at the end as CSV")
    return parser


def _add_network(group: Any) -> None:
    add = group.add_argument
    add(
        "--topology",
        nargs="+",
        default=["kleinberg"],
        metavar=("NAME", "FILE"),
        help=f"{', '.join(TOPOLOGIES[:-1])}, or file FILE with one link per line; swapped is kleinberg with locations"
        " that the nodes found by swapping; in grown, nodes join one by one and choose links [kleinberg]",
    )
    add("--nodes", type=parse_whole_number, metavar="N", help=f"number of nodes; not with a file [{DEFAULT_NODES}]")
    add(
        "--degree",
        type=parse_number,
        metavar="D",
        help=f"mean number of links per node, maximum of grown [{DEFAULT_DEGREE:g}]",
    )
    add("--lattice", action="store_true", help="also link each node to its two neighbours on the ring")
    add(
        "--rounds",
        type=parse_whole_number,
        metavar="N",
        help=f"mean number of swaps that each node of swapped attempted; rounds of grown [{DEFAULT_ROUNDS}]",
    )
    add(
        "--links",
        choices=sorted(LINK_POLICIES),
        help=f"policy by which the nodes of grown choose links [{DEFAULT_LINKS}]",
    )
    add(
        "--latency",
        type=parse_latency,
        default=LATENCY,
        metavar="S",
        help=f"latency of a link in seconds, or a range to draw it from, such as 0.02:0.2 [{LATENCY:g}]",
    )
    add(
        "--latency-file",
        default="",
        metavar="FILE",
        help="latencies of single links: a line has two nodes and the seconds; other links have --latency",
    )
    add("--loss", type=parse_number, default=0.0, metavar="P", help="probability that a message is lost [0]")
    add("--seed", type=parse_whole_number, default=1, metavar="N", help="random seed [%(default)s]")
    add(
        "--replicas",
        type=parse_whole_number,
        default=1,
        metavar="N",
        help="repeat the trial in N networks with successive seeds, and print means with 95 %% confidence intervals,"
        " or with --csv a row per network [%(default)s]",
    )


def _add_plan(group: Any) -> None:
    add = group.add_argument
    add("--keys", type=parse_whole_number, default=1, metavar="K", help="number of streams [%(default)s]")
    add(
        "--subscribers",
        type=parse_whole_number,
        metavar="S",
        help="subscribers per stream [100, or all nodes if there are fewer]",
    )
    add("--at-once", action="store_true", help="subscribe all nodes at the same time instead of one after the other")
    add(
        "--publish",
        type=parse_whole_number,
        default=1,
        metavar="N",
        help="packets per stream: after the trees have grown, after they have healed, and during churn [%(default)s]",
    )
    add(
        "--kill",
        type=parse_number,
        default=0.0,
        metavar="SHARE",
        help="kill this share of the nodes at once, such as 0.1",
    )
    add(
        "--churn",
        type=parse_number,
        default=inf,
        metavar="S",
        help="let nodes die and return, with a mean life of S seconds",
    )
    add("--births", type=parse_number, metavar="RATE", help="nodes that return per second [as many as die]")
    add(
        "--sessions",
        default="",
        metavar="DISTRIBUTION",
        help="let nodes run for times of exponential:MEAN, pareto:SHAPE:MEAN, weibull:SHAPE:MEAN, constant:SECONDS or"
        " file:FILE with a duration per line",
    )
    add(
        "--pauses",
        default="",
        metavar="DISTRIBUTION",
        help="with --sessions: let nodes stay away for such times [as --sessions]",
    )
    add(
        "--session-file",
        default="",
        metavar="FILE",
        help="let nodes run at recorded times: a line has a node, and the seconds at which it joins and leaves, or -",
    )
    add(
        "--swapping",
        type=parse_number,
        default=0.0,
        metavar="RATE",
        help="attempted location swaps per second",
    )
    add(
        "--duration",
        type=parse_number,
        default=600.0,
        metavar="S",
        help="duration of churn, sessions and swapping in seconds [%(default)g]",
    )
    add(
        "--settle",
        type=parse_number,
        default=120.0,
        metavar="S",
        help="seconds to settle after each step, with --loss [%(default)g]",
    )
    add(
        "--policy",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help=f"routing and repair policy: {', '.join(map(_with_default, fields(Policy)))}",
    )


def _with_default(field: Field[Any]) -> str:
    default = {True: "yes", False: "no"}[field.default] if isinstance(field.default, bool) else field.default
    return f"{field.name} [{default}]"


def _run(options: argparse.Namespace) -> int:
    policy = parse_policy(options.policy)
    files = _output_files(options)
    if not options.churn:
        raise ConfigurationError("--churn 0: nodes live for more than 0 seconds")
    if sum((options.churn < inf, bool(options.sessions), bool(options.session_file))) > 1:
        raise ConfigurationError("--churn, --sessions and --session-file exclude one another; give one of them")
    if options.pauses and not options.sessions:
        raise ConfigurationError("--pauses requires --sessions")
    if not 1 <= options.replicas <= MAX_REPLICAS:
        raise ConfigurationError(f"--replicas {options.replicas}: give 1 to {MAX_REPLICAS:,}")
    if files and options.replicas > 1:
        raise ConfigurationError(f"{OUTPUTS} show one network; remove --replicas")
    topology = build_topology(options)

    _check_page(options, topology)
    for file in files:
        # Fail now rather than after the run.
        with open(file, "a", encoding="utf-8"):
            pass
    plan = TrialPlan(
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
        options.sessions,
        options.pauses,
        options.session_file,
    )
    began, messages, replicas = monotonic(), 0, ReplicaReport()
    with ExitStack() as stack:
        trace = _open_trace(options, stack)
        bar = stack.enter_context(ProgressBar(total=plan.steps * options.replicas, leave=False, unit=" steps"))

        def report_progress(phase: str, steps: int) -> None:
            bar.set_description(phase, refresh=False)
            bar.update(steps)

        for replica in range(options.replicas):
            if replica:
                options.seed += 1
                topology = build_topology(options)
            latency = options.latency
            if options.latency_file:
                latency = LinkLatencies.from_file(options.latency_file, topology, options.latency)
            experiment = TreeExperiment(topology, policy, latency=latency, loss=options.loss, seed=options.seed)
            trial = Trial(experiment, plan, report_progress)
            if trace is not None:
                experiment.trace(trace)
            sampling = experiment.sampling(options.every) if options.series is not None else None
            trial.run()
            if sampling is not None:
                sampling.stop()
                with open(options.series, "w", encoding="utf-8") as out:
                    sampling.write_csv(out)
            if options.by_node is not None:
                with open(options.by_node, "w", encoding="utf-8") as out:
                    write_rows(experiment.node_metrics(), out)
            messages += experiment.messages
            report = TrialReport(trial)
            replicas.add(report)
        bar.close()
        if trace is not None:
            _write_drawings(options, trial.keys[0], trace)
    _print_report(options, report if options.replicas == 1 else replicas)
    if sys.stderr.isatty():
        took = monotonic() - began
        rate = messages / max(took, 1e-9)
        print(
            f"tree-experiment: {pluralize(messages, 'message')} in {took:.1f} s, {rate:,.0f} per second",
            file=sys.stderr,
        )
    return EXIT_FAILED if replicas.violations else 0


def _print_report(options: argparse.Namespace, report: TrialReport | ReplicaReport) -> None:
    if options.csv:
        report.write_csv(sys.stdout, heading=not options.no_heading)
    elif options.json:
        report.write_json(sys.stdout)
    else:
        print(*report.lines(), sep="\n")
    sys.stdout.flush()
    print(report.summary(), file=sys.stderr if options.csv or options.json else sys.stdout)


def _output_files(options: argparse.Namespace) -> list[str]:
    files = (options.trace, options.page, options.svg, options.series, options.by_node)
    named = [file for file in files if file is not None]
    if len({realpath(file) for file in named}) < len(named):
        raise ConfigurationError(f"{OUTPUTS}: two options name the same file; give each its own")
    if "-" in named:
        raise ConfigurationError(f"{OUTPUTS} require a file name, not -")
    if not options.every:
        raise ConfigurationError("--every 0: give a number of more than 0 seconds")
    if options.no_heading and not options.csv:
        raise ConfigurationError("--no-heading requires --csv")
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
            f"--page {options.page}: a page can show {MAX_PAGE_NODES:,} nodes, but there are {topology.n:,}; use --svg"
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
