"""``fyrehose simulate``: run scenarios from a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from os.path import realpath
from time import monotonic
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.wording import pluralize

# What runs a scenario is imported when one is run: this module is imported for `fyrehose --help` too.
if TYPE_CHECKING:
    from fyrehose_twisted.sim.runs.runner import RunSummary
    from fyrehose_twisted.sim.scenario import Scenario

ScenarioSource = Callable[[], Iterable["type[Scenario]"]]

DESCRIPTION = "Run a scenario on simulated time and a simulated network, and check what must hold."

MAX_SHOWN_FAILURES = 10
"""So many broken seeds are shown at most."""

SINGLE_SEED_FLAGS = ("--seed", "--trace", "--html", "--faults", "--print-faults", "--shrink")
"""What makes no sense with --seeds."""

MULTI_SEED_FLAGS = ("--first", "--jobs", "--stop-at-first")
"""What makes no sense without."""

NOT_WITH_PRINT_FAULTS = ("--trace", "--html", "--faults", "--shrink", "--split-seed")
"""What makes no sense with --print-faults, which runs nothing."""


def add_parser(commands: Any, scenarios: ScenarioSource) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    What is parsed has :func:`run` as its ``run``.

    :param scenarios: returns those that have a name on the command line; called when it is needed.
    """
    parser: argparse.ArgumentParser = commands.add_parser("simulate", help=DESCRIPTION, description=DESCRIPTION)
    add = parser.add_argument
    add("scenario", nargs="?", metavar="SCENARIO", help="its name, my_package.my_scenarios:Ticker or file.py:Ticker")
    add("--list", action="store_true", help="list the scenarios that have a name")
    add("--seed", type=_parse_seed, metavar="N", help="which run [one that is drawn, and printed]")
    add("--split-seed", type=_parse_seed, metavar="N", help="where batches are cut; nothing may depend on it [0]")
    one = parser.add_argument_group("one seed")
    one.add_argument("--trace", metavar="FILE", help="write what happens, as JSON lines; - is standard output")
    one.add_argument("--html", metavar="FILE", help="write a page that shows what happens")
    one.add_argument(
        "--print-faults", action="store_true", help="print the faults that the seed draws, and run nothing"
    )
    one.add_argument("--faults", metavar="FILE", help="let these faults happen instead; - is standard input")
    one.add_argument("--shrink", action="store_true", help="if something breaks, find the fewest faults that break it")
    many = parser.add_argument_group("many seeds")
    many.add_argument("--seeds", type=_parse_count, metavar="COUNT", help="run so many seeds")
    many.add_argument("--first", type=_parse_seed, metavar="N", help="the first of them [0]")
    many.add_argument("--jobs", type=_parse_count, metavar="N", help="in so many processes [one for each core]")
    many.add_argument("--stop-at-first", action="store_true", help="stop when something breaks")
    parser.set_defaults(run=run, scenarios=scenarios, parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status: 0 if everything held, 1 if not, 2 if it cannot be run.

    :raises SystemExit: 2, for wrong usage.
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
        # Whoever reads the trace has seen enough.
        return 1
    except OSError as error:
        return print_error(f"{error.filename or 'input or output'}: {error.strerror or error}", 2)
    except KeyboardInterrupt:
        return print_error("interrupted")


def print_error(problem: object, status: int = 1) -> int:
    """Say what went wrong in one line, and return the exit status for it."""
    print(f"fyrehose: {problem}", file=sys.stderr)
    return status


def _check(options: argparse.Namespace) -> None:
    given = [
        flag for flag in (*SINGLE_SEED_FLAGS, *MULTI_SEED_FLAGS, "--split-seed", "--seeds") if _is_given(options, flag)
    ]
    if options.list:
        if given or options.scenario is not None:
            options.parser.error("--list stands alone")
        return
    if options.scenario is None:
        options.parser.error("which scenario? --list shows them")
    if options.seeds is None:
        _reject_flags(options, given, MULTI_SEED_FLAGS, "is for many seeds; say how many with --seeds")
    else:
        _reject_flags(options, given, SINGLE_SEED_FLAGS, "is for one seed, and does not go together with --seeds")
    if options.print_faults:
        _reject_flags(
            options, given, NOT_WITH_PRINT_FAULTS, "does not go together with --print-faults, which runs nothing"
        )
    if options.html == "-":
        options.parser.error("--html wants a file; only a trace can go to standard output")
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
        # A script that ends itself when it is imported has run nothing either.
        print_exc()
        raise ConfigurationError(f"{called} cannot be imported") from None


def _run_one(options: argparse.Namespace, scenario: type[Scenario]) -> int:
    from fyrehose_twisted.sim.runs.runner import random_seed
    from fyrehose_twisted.sim.runs.single_run import SingleRun, run_single

    seed = options.seed
    if seed is None:
        seed = random_seed()
        # At once: what hangs or dies has to be replayed too.
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


def _parse_seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
