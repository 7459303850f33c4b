from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Send
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IDatagramNode, Outputs
from fyrehose_twisted.sim.crash_mode import Boot
from fyrehose_twisted.sim.faults.faults import PartitionFault
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.invariants import Invariant, InvariantViolated
from fyrehose_twisted.sim.runs import runner
from fyrehose_twisted.sim.runs.runner import (
    ProcessDied,
    RunSummary,
    replay_command,
    run_each,
    run_seed,
    run_seeds,
    soak,
    usable_cores,
)
from fyrehose_twisted.sim.runs.scenario_ref import ScenarioRef, load
from fyrehose_twisted.sim.scenario import NO_EXCEPTIONS, RunOutcome, Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule

HERE = Path(__file__)
PIPE = "TEST_RUNNER_PIPE"
MARK = "TEST_RUNNER_MARK"


@implementer(IDatagramNode)
class Counting:
    """A node that sends a number every 0.5 s to its peer and emits numbers received."""

    def __init__(self, boot: Boot, *peers: tuple[str, int]) -> None:
        self.peers = peers
        self.number = 0
        self.due = boot.now
        self.wanted = Outputs(None, [], [])

    def receive_batch(self, batch: Batch, now: float) -> None:
        self.wanted.events.extend(int(bytes(datagram)) for datagram, _, _ in batch)

    def tick(self, now: float) -> None:
        self.number += 1
        self.due = now + 0.5
        self.wanted.effects.append(Send([b"%d" % self.number], self.peers))

    def next_deadline(self) -> float | None:
        return self.due if self.peers else None

    def drain(self) -> Outputs:
        wanted, self.wanted = self.wanted, Outputs(None, [], [])
        return wanted


class WithoutGaps(Invariant):
    name = "without gaps"
    last = 0

    def event_emitted(self, host: Host, event: int) -> None:
        if event != self.last + 1:
            raise Peculiar(self.name, self.network.elapsed, [host.name], f"{event} after {self.last}")
        self.last = event


class Peculiar(InvariantViolated):
    """A violation that cannot be unpickled."""

    def __reduce__(self) -> tuple[type[Peculiar], tuple[()]]:  # type: ignore[override]
        return type(self), ()


class Toy(Scenario):
    name = "toy.counting"
    duration = 10.0

    def build(self) -> None:
        self.network.add("receiver", ("10.0.0.2", 2), Counting)
        self.network.add("sender", ("10.0.0.1", 1), lambda boot: Counting(boot, ("10.0.0.2", 2)))

    def draw_faults(self, rng: Random) -> FaultSchedule:
        return FaultSchedule([PartitionFault(rng.uniform(0, 9), 0.7, ("sender",), ("receiver",))])

    def digest(self) -> str:
        return str(self.network.scheduler.calls)


class Broken(Toy):
    """A scenario that fails with every third seed."""

    name = "toy.broken"

    def build(self) -> None:
        super().build()
        if self.seed % 3 == 2:
            self.add_invariant(WithoutGaps(self.network))


class Impossible(Toy):
    name = "toy.impossible"

    def build(self) -> None:
        raise ValueError("of course")


class Deadly(Toy):
    """A scenario that kills its process if the seed ends in 3, or if the mark file does not exist yet."""

    name = "toy.deadly"

    def build(self) -> None:
        super().build()
        mark = os.environ.get(MARK)
        if mark is None:
            if self.seed % 10 == 3:
                os._exit(9)
        elif not os.path.exists(mark):
            Path(mark).touch()
            os._exit(9)


class Endless(Toy):
    """A scenario that reports its process id and blocks, unless the seed is 0."""

    name = "toy.endless"

    def build(self) -> None:
        super().build()
        if self.seed:
            with open(os.environ[PIPE], "w") as pipe:
                print(os.getpid(), file=pipe)
            threading.Event().wait()


class Nameless(Scenario):
    pass


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the named pipe that :class:`Endless` reports to."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    monkeypatch.setenv(PIPE, str(path))
    return path


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty working directory; restore the module search path afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said_in(pipe: Path) -> int:
    """Read a number from a named pipe."""
    descriptor = os.open(pipe, os.O_RDWR)  # Opening for reading and writing does not block.
    assert select.select([descriptor], [], [], 20)[0]
    said = os.read(descriptor, 100)
    os.close(descriptor)
    return int(said)


def ended(descriptor: int) -> bool:
    """Tell whether a process ends within a generous timeout."""
    return bool(select.select([descriptor], [], [], 20)[0])


def seeds_of(outcomes: list[RunOutcome]) -> list[int]:
    return [outcome.seed for outcome in outcomes]


def test_the_test_nodes_provide_idatagramnode() -> None:
    assert verifyObject(IDatagramNode, Counting(Boot(0.0, None, None)))


class TestRunSeed:
    def test_arguments_of_run_seed_reach_the_scenario(self) -> None:
        samples: list[float] = []
        schedule = FaultSchedule([PartitionFault(1.0, 12.0, ("sender",), ("receiver",))] * 2)
        outcome = run_seed(Toy, 1, faults=schedule, on_sample=samples.append)
        assert (outcome.scenario, outcome.seed, outcome.faults, outcome.violation) == ("toy.counting", 1, 2, None)
        assert samples[:13] == pytest.approx([float(second) for second in range(1, 14)])
        assert samples[-1] == outcome.simulated_seconds
        other = run_seed(Toy, 1, split_seed=1)
        assert (other.faults, other.digest) == (1, run_seed(Toy, 1).digest)

    def test_an_exception_before_the_run_is_an_outcome_with_a_traceback(self) -> None:
        violation = run_seed(Impossible, 4).violation
        assert violation is not None
        assert str(violation) == f"{NO_EXCEPTIONS}: at 0.000000 s, whole network: ValueError: of course"
        assert 'raise ValueError("of course")' in violation.__notes__[0]

    def test_an_exception_in_a_node_is_an_outcome_with_a_traceback(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def tick(node: Counting, now: float) -> NoReturn:
            raise LookupError("no such number")

        monkeypatch.setattr(Counting, "tick", tick)
        violation = run_seed(Toy, 4).violation
        assert violation is not None
        assert (violation.invariant, violation.nodes) == (NO_EXCEPTIONS, ("sender",))
        assert 'raise LookupError("no such number")' in violation.__notes__[0]

    def test_an_outcome_of_run_seed_has_no_traceback_references(self) -> None:
        violation = run_seed(Broken, 2).violation
        assert violation is not None
        assert violation.__traceback__ is None

    def test_an_interrupt_is_not_attributed_to_a_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def tick(node: Counting, now: float) -> NoReturn:
            raise KeyboardInterrupt

        monkeypatch.setattr(Counting, "tick", tick)
        with pytest.raises(KeyboardInterrupt):
            run_seed(Toy, 4)


class TestRunSeeds:
    def test_worker_processes_give_the_same_summary_as_this_process(self) -> None:
        here = run_seeds(Broken, range(12), jobs=0)
        elsewhere = run_seeds(Broken, range(12), jobs=2)
        assert seeds_of(here.failures) == seeds_of(elsewhere.failures) == [2, 5, 8, 11]
        assert [str(o.violation) for o in here.failures] == [str(o.violation) for o in elsewhere.failures]
        assert type(here.failures[0].violation) is Peculiar
        assert type(elsewhere.failures[0].violation) is InvariantViolated
        for summary in (here, elsewhere):
            assert (summary.scenario, summary.count) == ("toy.broken", 12)
            assert 80 < summary.simulated_seconds < 120
            assert 0 < summary.faults <= 12
            assert summary.counters["sent"] > 160
            assert 0 < summary.rate == summary.simulated_seconds / summary.real_seconds
        assert (here.counters, here.simulated_seconds) == (elsewhere.counters, elsewhere.simulated_seconds)

    def test_a_summary_sums_its_outcomes(self) -> None:
        found: list[RunOutcome] = []
        summary = run_seeds(Toy, [5, 3], jobs=0, on_outcome=found.append)
        assert seeds_of(found) == [5, 3]
        assert summary.simulated_seconds == sum(outcome.simulated_seconds for outcome in found) == 20.0
        assert summary.faults == 2
        assert summary.counters == found[0].counters + found[1].counters
        assert (summary.failures, RunSummary("none").rate) == ([], 0.0)

    @pytest.mark.parametrize("jobs", [0, 1])
    def test_seeds_are_drawn_lazily(self, jobs: int) -> None:
        taken: list[int] = []

        def seeds() -> Iterator[int]:
            for seed in count():
                taken.append(seed)
                yield seed

        def enough(outcome: RunOutcome) -> None:
            if outcome.seed == 5:
                raise LookupError

        with pytest.raises(LookupError):
            run_seeds(Toy, seeds(), jobs=jobs, on_outcome=enough)
        assert len(taken) <= 6 + 2 * jobs

    def test_split_seed_reaches_every_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = []
        monkeypatch.setattr(runner, "run_seed", lambda scenario, seed, split_seed: seen.append((seed, split_seed)))
        list(run_each(Toy, [1], jobs=0, split_seed=3))
        monkeypatch.undo()
        assert seen == [(1, 3)]
        where = f"{HERE}:Splitting"
        (outcome,) = run_each(where, [1], jobs=1, split_seed=3)
        assert outcome.digest == "split 3"

    def test_the_default_number_of_processes_is_that_of_usable_cores(self) -> None:
        assert usable_cores() == len(os.sched_getaffinity(0))
        with pytest.raises(ConfigurationError, match="jobs=-1; give 0 or more processes"):
            run_seeds(Toy, [1], jobs=-1)

    def test_a_local_scenario_class_runs_only_in_this_process(self) -> None:
        class Local(Toy):
            name = "toy.local"

        assert run_seeds(Local, [1], jobs=0).count == 1
        with pytest.raises(ConfigurationError, match=r"Local is defined in a function, where no other process can"):
            run_seeds(Local, [1], jobs=1)


class Splitting(Toy):
    name = "toy.splitting"

    def __init__(self, seed: int, *, faults: FaultSchedule | None = None, split_seed: int = 0) -> None:
        super().__init__(seed, faults=faults, split_seed=split_seed)
        self.split_seed = split_seed

    def digest(self) -> str:
        return f"split {self.split_seed}"


class TestProcesses:
    def test_a_seed_that_kills_its_worker_fails_and_the_others_run(self) -> None:
        summary = run_seeds(Deadly, (1, 13, 2, 3, 4), jobs=2)
        assert summary.count == 5
        assert seeds_of(summary.failures) == [3, 13]
        violation = summary.failures[0].violation
        assert isinstance(violation, ProcessDied)
        assert str(violation) == "the process that ran it died: killed, or out of memory?"
        assert str(pickle.loads(pickle.dumps(violation))) == str(violation)  # noqa: S301

    def test_a_worker_killed_once_costs_no_seed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(MARK, str(tmp_path / "mark"))
        summary = run_seeds(Deadly, range(5), jobs=1)
        assert (summary.count, summary.failures) == (5, [])
        assert (tmp_path / "mark").exists()

    def test_closing_the_iterator_ends_running_workers(self, pipe: Path) -> None:
        with closing(run_each(Endless, count(), jobs=1)) as outcomes:
            assert next(outcomes).seed == 0
            process = os.pidfd_open(said_in(pipe))
        assert ended(process)
        os.close(process)

    def test_worker_processes_end_with_their_parent(self, pipe: Path) -> None:
        call = f"run_seeds({str(HERE) + ':Endless'!r}, [2], jobs=1)"
        program = f"from fyrehose_twisted.sim.runs.runner import run_seeds; {call}"
        with subprocess.Popen([sys.executable, "-c", program]) as parent:
            try:
                process = os.pidfd_open(said_in(pipe))
            finally:
                parent.kill()
        assert ended(process)
        os.close(process)


SCRIPT = """
import sys
from fyrehose_twisted.sim.runs.runner import run_seeds
{define}
print("began", __name__)
print(run_seeds({scenario}, range(4), jobs=2).count)
"""


@pytest.mark.parametrize(
    ("how", "define", "scenario"),
    [
        (["script.py"], "from toys import Mine", "Mine"),
        (["script.py"], "import toys\nclass Mine(toys.Mine): pass", "Mine"),
        (["-m", "script"], "", "'toys:Mine'"),
    ],
)
def test_run_seeds_works_in_a_script_without_a_main_guard(
    tmp_path: Path, how: list[str], define: str, scenario: str
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(define=define, scenario=scenario))
    (tmp_path / "toys.py").write_text(MINE)
    ran = subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("began __main__\n4\n", "")


MINE = """
from fyrehose_twisted.sim.scenario import Scenario

class Mine(Scenario):
    name = "mine.nothing"
    duration = 1.0
    def build(self): pass
"""


class TestLoad:
    def test_scenarios_are_loaded_by_module_and_by_file(self, paths: Path) -> None:
        package = paths / "of_mine_alone"
        package.mkdir()
        (package / "in_here.py").write_text(MINE + "class Outer:\n    class Inner(Mine): pass\n")
        by_name = load("of_mine_alone.in_here:Mine")
        by_file = load("of_mine_alone/in_here.py:Mine")
        assert by_name.name == by_file.name == "mine.nothing"
        assert load("of_mine_alone/in_here.py:Mine") is by_file
        assert load("of_mine_alone.in_here:Outer.Inner").__qualname__ == "Outer.Inner"
        for found in (by_name, by_file):
            assert ScenarioRef.of(found).resolve() is found
            assert run_seeds(found, [1], jobs=1).count == 1

    def test_a_scenario_file_can_import_neighbouring_modules(self, paths: Path) -> None:
        there = paths / "there"
        there.mkdir()
        (there / "neighbour_of_it.py").write_text(MINE)
        (there / "it.py").write_text("from neighbour_of_it import Mine\nclass It(Mine): pass\n")
        assert run_seeds("there/it.py:It", [1], jobs=1).count == 1

    def test_a_loaded_module_of_the_same_name_is_not_used(self) -> None:
        elsewhere = ScenarioRef("json", "Toy", str(HERE))
        assert elsewhere.resolve().name == "toy.counting"
        assert sys.modules["json"].__name__ == "json"

    @pytest.mark.parametrize(
        ("reference", "complaint"),
        [
            ("Toy", "'Toy' is not a scenario reference such as my_package.my_scenarios:Ticker"),
            (":Toy", "':Toy' is not a scenario reference such as"),
            ("json:", "'json:' is not a scenario reference such as"),
            ("no_such.module:Toy", "there is no module no_such.module, neither installed nor in "),
            ("json.no_such:Toy", "there is no module json.no_such, neither"),
            ("..:Toy", "'..' is not a module name"),
            ("no_such.py:Toy", "there is no file no_such.py"),
            ("json:Toy", "json has no scenario Toy"),
            ("json:loads", "json has no scenario loads"),
            (f"{HERE}:Toi", "has no scenario Toi; there are Broken, Deadly, .*Toy"),
            (f"{HERE}:Nameless", "Nameless has no name; define one: name = 'protocol.scenario'"),
        ],
    )
    def test_an_invalid_scenario_reference_is_reported(self, paths: Path, reference: str, complaint: str) -> None:
        with pytest.raises(ConfigurationError, match=complaint):
            load(reference)

    def test_an_exception_of_a_scenario_module_propagates(self, paths: Path) -> None:
        (paths / "needs_another.py").write_text("import no_such_module_at_all")
        for reference in ("needs_another:X", "needs_another.py:X", "needs_another.py:X"):
            with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
                load(reference)

    def test_a_scenario_without_a_name_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="Nameless has no name"):
            run_seeds(Nameless, [1], jobs=0)


class TestSoak:
    def test_soak_runs_scenarios_in_turn_until_the_time_is_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = count()
        monkeypatch.setattr(runner, "monotonic", lambda: float(next(now)))
        found: list[tuple[str, int]] = []
        summaries = soak(
            [Toy, Broken], 7, jobs=0, seeds=count(100), on_outcome=lambda o: found.append((o.scenario, o.seed))
        )
        assert found[:4] == [(("toy.counting", "toy.broken")[turn % 2], 100 + turn) for turn in range(4)]
        assert 4 <= len(found) <= 8
        assert sum(summary.count for summary in summaries.values()) == len(found)
        assert seeds_of(summaries["toy.broken"].failures) == [101]
        assert 7 < summaries["toy.counting"].real_seconds <= summaries["toy.broken"].real_seconds + 1

    def test_soak_runs_each_scenario_at_least_once_with_fresh_seeds(self) -> None:
        outcomes: list[RunOutcome] = []
        for _ in range(2):
            summaries = soak([Toy, f"{HERE}:Splitting"], 0.0, jobs=1, on_outcome=outcomes.append)
            assert {name: summary.count for name, summary in summaries.items()} == {
                "toy.counting": 1,
                "toy.splitting": 1,
            }
        assert len(set(seeds_of(outcomes))) == 4

    def test_soak_without_scenarios_returns_nothing(self) -> None:
        assert soak([], 10.0) == {}


def test_the_replay_command_is_quoted_for_a_shell() -> None:
    assert replay_command("a file.py:X", 7, "--faults", "f") == "fyrehose simulate 'a file.py:X' --seed 7 --faults f"
