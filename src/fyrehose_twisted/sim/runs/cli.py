"""Command ``fyrehose simulate``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from os.path import realpath
from time import monotonic
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.process.arguments import parse_count, parse_whole_number
from fyrehose_twisted.wording import pluralize

# The modules that run a scenario are imported on use: `fyrehose --help` imports this module too.
if TYPE_CHECKING:
    from fyrehose_twisted.sim.runs.runner import RunSummary
    from fyrehose_twisted.sim.scenario import Scenario

ScenarioSource = Callable[[], Iterable["type[Scenario]"]]

DESCRIPTION = "Run a scenario on a simulated network in virtual time, and check its invariants."

MAX_SHOWN_FAILURES = 10
"""Maximum number of failed seeds shown."""

SINGLE_SEED_FLAGS = ("--seed", "--trace", "--html", "--faults", "--print-faults", "--shrink")
"""Options that cannot be combined with --seeds."""

MULTI_SEED_FLAGS = ("--first", "--jobs", "--stop-at-first")
"""Options that require --seeds."""

NOT_WITH_PRINT_FAULTS = ("--trace", "--html", "--faults", "--shrink", "--split-seed")
"""Options that cannot be combined with --print-faults, which runs nothing."""


def add_parser(commands: Any, scenarios: ScenarioSource) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed options have :func:`run` as their ``run``.

    :param scenarios: returns the scenarios that have a name on the command line; called on use.
    """
    parser: argparse.ArgumentParser = commands.add_parser("simulate", help=DESCRIPTION, description=DESCRIPTION)
    add = parser.add_argument
    add(
        "scenario",
        nargs="?",
        metavar="SCENARIO",
        help="a name from --list, my_package.my_scenarios:Ticker or file.py:Ticker",
    )
    add("--list", action="store_true", help="list the named scenarios")
    add("--seed", type=parse_whole_number, metavar="N", help="seed of the run [random, and printed]")
    add(
        "--split-seed",
        type=parse_whole_number,
        metavar="N",
        help="seed of batch boundaries, on which the outcome must not depend [0]",
    )
    one = parser.add_argument_group("one seed")
    one.add_argument("--trace", metavar="FILE", help="write a trace in JSON lines; - is standard output")
    one.add_argument("--html", metavar="FILE", help="write a page that shows the run")
    one.add_argument("--print-faults", action="store_true", help="print the faults that the seed draws, without a run")
    one.add_argument("--faults", metavar="FILE", help="use these faults instead; - is standard input")
    one.add_argument(
        "--shrink", action="store_true", help="if an invariant breaks, find a minimal set of faults that break it"
    )
    many = parser.add_argument_group("many seeds")
    many.add_argument("--seeds", type=parse_count, metavar="COUNT", help="number of seeds to run")
    many.add_argument("--first", type=parse_whole_number, metavar="N", help="first seed [0]")
    many.add_argument("--jobs", type=parse_count, metavar="N", help="number of processes [one per core]")
    many.add_argument("--stop-at-first", action="store_true", help="stop at the first broken invariant")
    parser.set_defaults(run=run, scenarios=scenarios, parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status: 0 if all invariants held, 1 if one broke, 2 if it cannot run.

    :raises SystemExit: with 2, on a usage error.
    """
    _check(options)
    if options.list:
        return _list(options.scenarios())

    from fyrehose_twisted.errors import ConfigurationError

    try:
        scenario = _find_scenario(options)
        if options.seeds is not None:
            return _run_many(options, scenario)
        return _run_one(options, scenario)
    except ConfigurationError as error:
        return print_error(error, 2)
    except BrokenPipeError:
        # The reader of the trace has closed the pipe.
        return 1
    except OSError as error:
        return print_error(f"{error.filename or 'input or output'}: {error.strerror or error}", 2)
    except KeyboardInterrupt:
        return print_error("interrupted")


def print_error(problem: object, status: int = 1) -> int:
    """Print an error in one line on standard error; return ``status``."""
    print(f"fyrehose: {problem}", file=sys.stderr)
    return status


def _check(options: argparse.Namespace) -> None:
    given = [
        flag for flag in (*SINGLE_SEED_FLAGS, *MULTI_SEED_FLAGS, "--split-seed", "--seeds") if _is_given(options, flag)
    ]
    if options.list:
        if given or options.scenario is not None:
            options.parser.error("--list takes no other arguments")
        return
    if options.scenario is None:
        options.parser.error("no SCENARIO given; --list shows the available ones")
    if options.seeds is None:
        _reject_flags(options, given, MULTI_SEED_FLAGS, "requires --seeds COUNT")
    else:
        _reject_flags(options, given, SINGLE_SEED_FLAGS, "is for a single seed and cannot be combined with --seeds")
    if options.print_faults:
        _reject_flags(
            options, given, NOT_WITH_PRINT_FAULTS, "cannot be combined with --print-faults, which runs nothing"
        )
    if options.html == "-":
        options.parser.error("--html requires a file; only --trace can write to standard output")
    if options.html is not None and options.trace is not None and realpath(options.html) == realpath(options.trace):
        options.parser.error("--trace and --html name the same file")


def _reject_flags(options: argparse.Namespace, given: Sequence[str], flags: Sequence[str], reason: str) -> None:
    for flag in flags:
        if flag in given:
            options.parser.error(f"{flag} {reason}")


def _is_given(options: argparse.Namespace, flag: str) -> bool:
    value = getattr(options, flag[2:].replace("-", "_"))
    return value is not None and value is not False  # 0 is a seed.


def _list(scenarios: Iterable[type[Scenario]]) -> int:
    about = {scenario.name: _first_sentence(scenario.__doc__ or "") for scenario in scenarios}
    width = max(map(len, about), default=0)
    for name, line in about.items():
        print(f"{name:{width}}  {line}".rstrip())
    return 0


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


def _find_scenario(options: argparse.Namespace) -> type[Scenario]:
    called: str = options.scenario
    if ":" in called or called.endswith(".py"):
        return _load_scenario(called)
    known: dict[str, type[Scenario]] = {scenario.name: scenario for scenario in options.scenarios()}
    former = {alias: scenario for scenario in known.values() for alias in vars(scenario).get("aliases", ())}
    if called in former:
        return former[called]
    if called not in known:
        from difflib import get_close_matches

        close = "".join(f"; did you mean {name}?" for name in get_close_matches(called, known, 1))
        there_are = f"There are {', '.join(known)}, and your own as my_package.my_scenarios:Ticker"
        options.parser.error(f"there is no scenario {called!r}{close or '.'} {there_are}")
    return known[called]


def _load_scenario(called: str) -> type[Scenario]:
    from traceback import print_exc

    from fyrehose_twisted.errors import ConfigurationError
    from fyrehose_twisted.sim.runs.scenario_ref import load

    try:
        return load(called)
    except ConfigurationError:
        raise
    except (Exception, SystemExit):
        # A script that exits when it is imported is unusable too.
        print_exc()
        raise ConfigurationError(f"{called} cannot be imported") from None


def _run_one(options: argparse.Namespace, scenario: type[Scenario]) -> int:
    from fyrehose_twisted.sim.runs.runner import random_seed
    from fyrehose_twisted.sim.runs.single_run import SingleRun, run_single

    seed = options.seed
    if seed is None:
        seed = random_seed()
        # Printed before the run, so that a run that hangs or dies can be replayed.
        print(f"fyrehose: seed {seed}", file=sys.stderr)
    if options.print_faults:
        print(scenario(seed).faults, end="")
        return 0
    return run_single(SingleRun(scenario, options.scenario, seed, options), options)


def _run_many(options: argparse.Namespace, scenario: type[Scenario]) -> int:
    from fyrehose_twisted.process.progress import ProgressBar
    from fyrehose_twisted.sim.runs.runner import RunSummary, run_each, usable_cores

    cores = usable_cores()
    first = options.first or 0
    summary = RunSummary(scenario.name)
    began = monotonic()
    interrupted = False
    with (
        closing(
            run_each(
                scenario,
                range(first, first + options.seeds),
                jobs=options.jobs or cores,
                split_seed=options.split_seed or 0,
            )
        ) as outcomes,
        ProgressBar(total=options.seeds, leave=False, desc=scenario.name, unit=" seeds") as bar,
    ):
        try:
            for outcome in outcomes:
                summary.add(outcome)
                bar.set_postfix_str(f"{len(summary.failures)} broken", refresh=outcome.violation is not None)
                bar.update()
                if options.stop_at_first and summary.failures:
                    break
        except KeyboardInterrupt:
            interrupted = True
    summary.finish(monotonic() - began)
    _report(options, summary, min(options.jobs or cores, cores))
    if interrupted:
        return print_error(f"interrupted after {summary.count:,} of {pluralize(options.seeds, 'seed')}")
    return 1 if summary.failures else 0


def _report(options: argparse.Namespace, summary: RunSummary, cores: int) -> None:
    from fyrehose_twisted.sim.runs.runner import replay_command
    from fyrehose_twisted.sim.runs.summary_text import describe_summary

    split = ("--split-seed", str(options.split_seed)) if options.split_seed else ()
    print(describe_summary(summary, cores))
    for outcome in summary.failures[:MAX_SHOWN_FAILURES]:
        print(f"  seed {outcome.seed}: {outcome.violation}")
        print(f"  Replay: {replay_command(options.scenario, outcome.seed, *split)}")
    if len(summary.failures) > MAX_SHOWN_FAILURES:
        print(f"  and {len(summary.failures) - MAX_SHOWN_FAILURES:,} more")
