from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.cli.main import BACKBONE, main
from fyrehose_twisted.sim.runs import runner, single_run

FYREHOSE = str(Path(sys.executable).parent / "fyrehose")

TOYS = '''
import os, threading
from random import Random
from fyrehose_twisted.effects import Send
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.sim.faults.faults import PartitionFault, PauseFault
from fyrehose_twisted.sim.schedule import FaultSchedule
from fyrehose_twisted.sim.crash_mode import Boot
from fyrehose_twisted.sim.invariants import Invariant
from fyrehose_twisted.sim.scenario import Scenario

class Counting:
    def __init__(self, boot, *peers):
        self.peers, self.number, self.due, self.wanted = peers, 0, boot.now, Outputs(None, [], [])
    def receive_batch(self, batch, now):
        self.wanted.events.extend(int(bytes(datagram)) for datagram, _, _ in batch)
    def tick(self, now):
        self.number += 1
        self.due = now + 0.5
        self.wanted.effects.append(Send([b"%d" % self.number], self.peers))
    def next_deadline(self):
        return self.due if self.peers else None
    def drain(self):
        wanted, self.wanted = self.wanted, Outputs(None, [], [])
        return wanted

class Gaps(Invariant):
    name = "no gaps"
    last = 0
    def event_emitted(self, host, event):
        if event != self.last + 1:
            self.violated(f"{event} after {self.last}", host)
        self.last = event

class Ticker(Scenario):
    """A node
    counts. Here is more.

    And more.
    """
    name = "toy.ticker"
    duration = 20.0
    def build(self):
        self.network.add("receiver", ("10.0.0.2", 2), Counting)
        self.network.add("sender", ("10.0.0.1", 1), lambda boot: Counting(boot, ("10.0.0.2", 2)))
    def draw_faults(self, rng):
        names = {"sender", "receiver", "another"}
        pauses = [PauseFault(rng.uniform(0, 19), 0.1, name) for name in sorted(names - {"another"}) * 3]
        return FaultSchedule([PartitionFault(rng.uniform(1, 9), 1.5, ("sender",), ("receiver",)), *pauses])

class Picky(Ticker):
    """A scenario that fails with every other seed."""
    name = "toy.picky"
    def build(self):
        super().build()
        if self.seed % 2:
            self.add_invariant(Gaps(self.network))

class Raising(Ticker):
    name = "toy.raising"
    def settled(self):
        raise LookupError("whether it has settled")

class Impossible(Ticker):
    name = "toy.impossible"
    def build(self):
        raise ValueError("of course")

class Elsewhere(Ticker):
    """A scenario that raises at a fault, and elsewhere without faults."""
    name = "toy.elsewhere"
    def settled(self):
        if len(self.faults) > 2:
            raise LookupError(f"too many: {len(self.faults)}")
        raise LookupError("too few")

class Blocking(Ticker):
    name = "toy.blocking"
    def build(self):
        super().build()
        if self.seed >= 2:
            with open("pipe", "w") as pipe:
                print(os.getpid(), file=pipe)
            threading.Event().wait()

class Interrupted(Ticker):
    """A scenario interrupted by Ctrl-C during the run, or while its faults are shrunk."""
    name = "toy.interrupted"
    runs = 0
    def build(self):
        super().build()
        Interrupted.runs += 1
        if self.seed == 9 and self.runs < 5:
            self.add_invariant(Gaps(self.network))
        else:
            self.network.call_in(5.0, self.interrupt)
    def interrupt(self):
        raise KeyboardInterrupt

class Short(Ticker):
    name = "toy.short"
    duration = 1.0
    def draw_faults(self, rng):
        return FaultSchedule()

class Deadly(Ticker):
    name = "toy.deadly"
    def build(self):
        super().build()
        if self.seed == 1:
            os._exit(9)
'''

Simulate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory of the command, with ``toys.py``."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "toys", raising=False)
    (tmp_path / "toys.py").write_text(TOYS)
    return tmp_path


@pytest.fixture
def simulate(toys: Path, capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Run the command in this process; return its status, its output and its errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["simulate", *map(str, arguments)])
        assert isinstance(stopped.value.code, int)
        return (stopped.value.code, *capsys.readouterr())

    return run


def command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [FYREHOSE, "simulate", *map(str, arguments)],
        **{"capture_output": True, "text": True, "timeout": 60, "check": False, **options},
    )


class TestOneSeed:
    def test_simulate_one_seed_without_violation_prints_a_summary(self, toys: Path) -> None:
        ran = command("toys:Ticker", "--seed", 7)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.startswith("toy.ticker, seed 7: 20 s simulated in 0.")
        assert ran.stdout.endswith(
            " times real time), 0 operations, 7 faults, 40 datagrams of which 3 were dropped: everything held\n"
        )

    def test_simulate_one_seed_with_a_violation_prints_a_replay_command(self, simulate: Simulate) -> None:
        status, out, err = simulate("toys.py:Picky", "--seed", 9, "--split-seed", 3)
        assert (status, err) == (1, "")
        first, second = out.splitlines()
        assert first.startswith("toy.picky, seed 9: no gaps: at ")
        assert " s, receiver: " in first
        assert second == "Replay it: fyrehose simulate toys.py:Picky --seed 9 --split-seed 3"
        replayed = simulate(*second.split()[4:])
        assert replayed == (1, out, "")

    def test_simulate_without_a_seed_prints_the_random_seed(
        self, simulate: Simulate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runner, "random_seed", lambda: 1234)
        status, out, err = simulate("toys:Short")
        assert (status, err) == (0, "fyrehose: seed 1234\n")
        assert out.startswith("toy.short, seed 1234: 1.0 s simulated in 0.")
        assert out.endswith(", 0 operations, 0 faults, 3 datagrams of which 0 were dropped: everything held\n")

    def test_an_exception_of_a_scenario_is_shown_with_its_traceback(self, simulate: Simulate) -> None:
        status, out, err = simulate("toys:Raising", "--seed", 1)
        assert status == 1
        assert "LookupError in toys.py, line " in out
        assert err.startswith("Traceback")
        assert err.endswith("LookupError: whether it has settled\n")

    def test_simulate_writes_trace_and_html_report(self, simulate: Simulate, toys: Path) -> None:
        status, out, _ = simulate("toys:Picky", "--seed", 9, "--trace", "9.jsonl", "--html", "9.html")
        assert status == 1
        entries = [json.loads(line) for line in (toys / "9.jsonl").read_text().splitlines()]
        assert [entry["kind"] for entry in (entries[0], *entries[-2:])] == ["run", "broken", "end"]
        assert (entries[0]["scenario"], entries[0]["seed"]) == ("toy.picky", 9)
        assert entries[-2]["what"] in out
        page = (toys / "9.html").read_text()
        assert '"scenario":"toy.picky"' in page
        assert page.rstrip().endswith("</html>")
        assert simulate("toys:Picky", "--seed", 9, "--html", "alone.html")[0] == 1
        assert (toys / "alone.html").read_text() == page

    def test_a_trace_to_standard_output_moves_the_summary_to_standard_error(
        self, simulate: Simulate, toys: Path
    ) -> None:
        _, lines, err = simulate("toys:Short", "--seed", 1, "--trace", "-")
        assert err.startswith("toy.short, seed 1: 1.0 s simulated")
        assert [json.loads(line)["kind"] for line in lines.splitlines()][::100] == ["run"]
        _, again, _ = simulate("toys:Short", "--seed", 1, "--trace", "-", "--html", "page.html")
        assert again == lines
        assert simulate("toys:Short", "--seed", 1, "--trace", "file")[0] == 0
        assert (toys / "file").read_text() == lines
        assert '"scenario":"toy.short"' in (toys / "page.html").read_text()

    def test_equal_seeds_give_equal_bytes_in_any_process(self, toys: Path) -> None:
        traces = [
            command("toys:Ticker", "--seed", 5, "--trace", "-", env={**os.environ, "PYTHONHASHSEED": salt}).stdout
            for salt in ("1", "2")
        ]
        assert len(traces[0]) > 3_000
        assert traces[0] == traces[1]

    @pytest.mark.parametrize("option", ["--trace", "--html"])
    def test_a_scenario_that_cannot_be_built_leaves_no_html_report(self, simulate: Simulate, option: str) -> None:
        status, out, _ = simulate("toys:Impossible", "--seed", 1, option, "file")
        assert status == 1
        assert out.splitlines()[1:] == [
            "No page written: the scenario failed while it was built",
            "Replay it: fyrehose simulate toys:Impossible --seed 1",
        ]

    def test_an_interrupted_run_writes_its_html_report(self, simulate: Simulate, toys: Path) -> None:
        status, out, err = simulate("toys:Interrupted", "--seed", 1, "--trace", "trace", "--html", "page.html")
        assert (status, out, err) == (1, "", "fyrehose: interrupted\n")
        assert "</html>" in (toys / "page.html").read_text()
        assert json.loads((toys / "trace").read_text().splitlines()[-1])["t"] <= 5.0


class TestFaults:
    def test_printed_faults_can_be_replayed_from_a_file(self, simulate: Simulate, toys: Path) -> None:
        status, drawn, err = simulate("toys:Picky", "--seed", 9, "--print-faults")
        assert (status, err, len(drawn.splitlines())) == (0, "", 7)
        (toys / "some faults").write_text(drawn)
        status, out, _ = simulate("toys:Picky", "--seed", 9, "--faults", "some faults")
        assert status == 1
        replay = "Replay it: fyrehose simulate toys:Picky --seed 9"
        assert out == simulate("toys:Picky", "--seed", 9)[1].replace(replay, f"{replay} --faults 'some faults'")
        cut = next(line for line in drawn.splitlines() if "cut" in line)
        (toys / "others").write_text(drawn.replace(cut, ""))
        status, out, _ = simulate("toys:Picky", "--seed", 9, "--faults", "others")
        assert status == 0
        assert " 6 faults, 41 datagrams of which 0 were dropped" in out

    def test_shrunk_faults_are_printed_as_a_shell_command(self, simulate: Simulate, toys: Path) -> None:
        status, out, err = simulate("toys:Picky", "--seed", 9, "--shrink")
        assert (status, err) == (1, "")
        _, replay, enough, again, *here_document = out.splitlines()
        assert replay == f"{again} fyrehose simulate toys:Picky --seed 9"
        assert enough.startswith("1 of 7 faults is enough (")
        assert " runs tried): no gaps: at " in enough
        assert here_document[0] == "fyrehose simulate toys:Picky --seed 9 --faults - <<END"
        assert " cut sender -> receiver for " in here_document[1]
        path = f"{Path(FYREHOSE).parent}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["sh"],
            input="\n".join(here_document),
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (1, "")
        assert ran.stdout.startswith("toy.picky, seed 9: no gaps: at ")
        assert enough.endswith(ran.stdout.splitlines()[0].partition(": ")[2])

    def test_shrinking_a_violation_without_faults_says_so(self, simulate: Simulate) -> None:
        _, out, _ = simulate("toys:Raising", "--seed", 1, "--shrink")
        replay = "fyrehose simulate toys:Raising --seed 1 --faults /dev/null"
        assert "\nNo fault is needed (" in out
        assert out.splitlines()[-1] == f"Replay it: {replay}"
        status, out, _ = simulate(*replay.split()[2:])
        assert status == 1
        assert "whether it has settled" in out

    def test_faults_read_from_standard_input_are_printed_in_the_replay_command(
        self, simulate: Simulate, toys: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fault = "2.0 cut sender -> receiver for 1.5\n"
        monkeypatch.setattr(sys, "stdin", StringIO(f"# the only one\n{fault}"))
        status, out, err = simulate("toys:Picky", "--seed", 9, "--faults", "-")
        assert (status, err) == (1, "")
        replay = "fyrehose simulate toys:Picky --seed 9 --faults"
        assert out.partition("\n")[2] == f"Replay it:\n{replay} - <<END\n{fault}END\n"
        monkeypatch.setattr(sys, "stdin", StringIO())
        _, out, _ = simulate("toys:Raising", "--seed", 9, "--faults", "-")
        assert out.endswith("\nReplay it: fyrehose simulate toys:Raising --seed 9 --faults /dev/null\n")

    def test_faults_of_an_unknown_host_are_a_usage_error(self, simulate: Simulate, toys: Path) -> None:
        (toys / "faults").write_text("1.0 pause sender for 1.0\n2.0 pause recevier for 1.0\n")
        status, out, err = simulate("toys:Picky", "--seed", 9, "--faults", "faults", "--trace", "trace")
        assert (status, out) == (2, "")
        assert err == (
            "fyrehose: the fault '2.0 pause recevier for 1.0': no host 'recevier';"
            " did you mean receiver? There are receiver, sender\n"
        )
        assert not (toys / "trace").exists()
        status, out, _ = simulate("toys:Impossible", "--seed", 9, "--faults", "faults")
        assert status == 1
        assert "ValueError: of course" in out

    def test_shrinking_preserves_the_raising_line(self, simulate: Simulate) -> None:
        _, out, _ = simulate("toys:Elsewhere", "--seed", 1, "--shrink")
        assert "\n3 of 7 faults are enough (" in out
        assert ": too many: 3\n" in out

    def test_a_scenario_that_cannot_be_built_cannot_be_shrunk(self, simulate: Simulate) -> None:
        status, out, err = simulate("toys:Impossible", "--seed", 1, "--shrink")
        assert status == 1
        assert out.splitlines()[1:] == [
            "Replay it: fyrehose simulate toys:Impossible --seed 1",
            "Nothing to shrink: the scenario fails before the run begins",
        ]
        assert err.count("Traceback") == 1

    def test_interrupted_shrinking_prints_the_best_result(self, simulate: Simulate) -> None:
        status, out, err = simulate("toys:Interrupted", "--seed", 9, "--shrink")
        assert (status, err) == (1, "fyrehose: interrupted\n")
        assert out.splitlines()[-1] == "END"
        assert "are enough (2 runs tried): no gaps" in out


class TestManySeeds:
    def test_simulate_many_seeds_without_violation_prints_a_summary(self, toys: Path) -> None:
        ran = command("toys:Ticker", "--seeds", 30, "--jobs", 2)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.startswith("toy.ticker: 30 seeds, 600 s simulated in ")
        assert ran.stdout.endswith(" simulated hours an hour, 0 operations, 210 faults: everything held\n")

    def test_simulate_many_seeds_lists_each_violation_with_a_replay_command(self, simulate: Simulate) -> None:
        status, out, err = simulate("toys:Picky", "--seeds", 4, "--first", 10, "--split-seed", 2, "--jobs", 1)
        assert (status, err) == (1, "")
        lines = out.splitlines()
        assert lines[0].endswith(": 2 seeds broke")
        assert [line.partition(": ")[0] for line in lines[1:]] == ["  seed 11", "  Replay", "  seed 13", "  Replay"]
        assert lines[2] == "  Replay: fyrehose simulate toys:Picky --seed 11 --split-seed 2"

    def test_simulate_shows_a_limited_number_of_failed_seeds(self, simulate: Simulate) -> None:
        status, out, _ = simulate("toys:Picky", "--seeds", 25, "--jobs", 1)
        assert (status, len(out.splitlines())) == (1, 22)
        assert " on 1 core: " in out
        assert out.endswith("\n  and 2 more\n")

    def test_simulate_stops_at_the_first_violation_on_request(self, simulate: Simulate) -> None:
        status, out, _ = simulate("toys:Picky", "--seeds", 1_000_000_000, "--first", 2, "--stop-at-first", "--jobs", 1)
        assert status == 1
        assert "toy.picky: 2 seeds, " in out
        assert ": 1 seed broke\n  seed 3: no gaps" in out

    def test_a_seed_that_kills_its_process_is_reported_as_failed(self, simulate: Simulate) -> None:
        status, out, err = simulate("toys:Deadly", "--seeds", 3, "--jobs", 1)
        assert (status, err) == (1, "")
        assert out.splitlines()[1:] == [
            "  seed 1: the process that ran it died: killed, or out of memory?",
            "  Replay: fyrehose simulate toys:Deadly --seed 1",
        ]

    # In the second case one process is idle or has just begun.
    @pytest.mark.parametrize(("seeds", "jobs", "done"), [(50, 1, "[12]"), (3, 2, "[012]")])
    def test_an_interrupt_prints_the_partial_summary_and_leaves_no_process(
        self, toys: Path, seeds: int, jobs: int, done: str
    ) -> None:
        os.mkfifo("pipe")
        with (
            subprocess.Popen(
                [FYREHOSE, "simulate", "toys:Blocking", "--seeds", str(seeds), "--jobs", str(jobs)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as running,
            ExitStack() as stack,
        ):
            stack.callback(running.kill)
            pipe = os.open("pipe", os.O_RDWR)  # Opening for reading and writing does not block.
            assert select.select([pipe], [], [], 120)[0]
            number = int(os.read(pipe, 100))
            os.close(pipe)
            worker = os.pidfd_open(number)
            # Whether it prints before it is killed is a race, so this checks its blocked signals.
            blocked = re.search("SigBlk:\t(.*)", Path(f"/proc/{number}/status").read_text())
            assert blocked is not None
            assert int(blocked[1], 16) & 1 << signal.SIGINT - 1
            os.killpg(running.pid, signal.SIGINT)
            out, err = running.communicate(timeout=120)
        assert running.returncode == 1
        assert re.fullmatch(f"fyrehose: interrupted after {done} of {seeds} seeds\n", err)
        assert re.match(f"toy.blocking: {done} seeds?, .* simulated in ", out)
        with pytest.raises(ProcessLookupError):
            signal.pidfd_send_signal(worker, signal.SIGKILL)
        os.close(worker)

    def test_an_interrupt_before_the_first_seed_exits_cleanly(
        self, simulate: Simulate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt() -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(runner, "usable_cores", interrupt)
        assert simulate("toys:Ticker", "--seeds", 4) == (1, "", "fyrehose: interrupted\n")


def test_simulate_shows_progress_on_a_terminal(toys: Path, shown_on_terminal: Any) -> None:
    for arguments, shown in (
        (("toys:Picky", "--seeds", 4, "--jobs", 1), (" seeds/s", "2 broken")),
        (
            ("toys:Picky", "--seed", 9, "--shrink"),
            ("toy.picky, seed 9: ", " s simulated |", "shrinking: 1 of 7 faults left"),
        ),
    ):
        status, _, seen = shown_on_terminal([FYREHOSE, "simulate", *arguments])
        assert status == 1
        for text in shown:
            assert text in seen


class TestList:
    def test_list_prints_scenarios_with_names(self) -> None:
        ran = command("--list")
        assert (ran.returncode, ran.stderr) == (0, "")
        lines = ran.stdout.splitlines()
        assert any(line.startswith("fyrehose.storm  ") for line in lines)
        assert len({len(line) - len(line.partition("  ")[2].lstrip()) for line in lines}) == 1

    def test_a_former_name_runs_the_renamed_scenario(
        self, simulate: Simulate, toys: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from fyrehose_twisted.cli import main as cli
        from fyrehose_twisted.sim.runs.scenario_ref import load

        ticker = load("toys:Ticker")
        monkeypatch.setattr(ticker, "aliases", ("toy.tock",), raising=False)
        monkeypatch.setattr(cli, "_scenarios", lambda: [ticker])
        assert "toy.tock" not in simulate("--list")[1]
        status, out, _ = simulate("toy.tock", "--seed", 1)
        assert status == 0
        assert "toy.ticker" in out

    def test_list_prints_the_first_sentence_of_each_docstring(
        self, simulate: Simulate, toys: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from fyrehose_twisted.cli import main as cli
        from fyrehose_twisted.sim.runs.scenario_ref import load

        chosen = [load(f"toys:{name}") for name in ("Ticker", "Raising", "Interrupted")]
        monkeypatch.setattr(cli, "_scenarios", lambda: chosen)
        assert simulate("--list")[1].splitlines() == [
            "toy.ticker       A node counts",
            "toy.raising",
            "toy.interrupted  A scenario interrupted by Ctrl-C during the run, or while its faults are shrunk",
        ]
        assert simulate("toy.ticker", "--seed", 1)[0] == 0
        status, _, err = simulate("toy.tickler")
        assert status == 2
        assert err.endswith(
            "simulate: there is no scenario 'toy.tickler'; did you mean toy.ticker? There are toy.ticker, toy.raising,"
            " toy.interrupted, and your own as my_package.my_scenarios:Ticker; see fyrehose simulate --help\n"
        )


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ("", "no SCENARIO given; --list shows the available ones"),
            ("--list toys:Ticker", "--list takes no other arguments"),
            ("--list --seed 0", "--list takes no other arguments"),
            ("X --seeds 0", "argument --seeds: '0' is not a whole number above 0"),
            ("X --seed -1", "argument --seed: '-1' is not a whole number"),
            ("X --seed 1 --seeds 2", "--seed is for a single seed and cannot be combined with --seeds"),
            ("X --seeds 2 --trace x", "--trace is for a single seed and cannot be combined with --seeds"),
            ("X --seeds 2 --shrink", "--shrink is for a single seed and cannot be combined with --seeds"),
            ("X --jobs 2", "--jobs requires --seeds COUNT"),
            ("X --seed 1 --first 0", "--first requires --seeds COUNT"),
            ("X --print-faults --html x", "--html cannot be combined with --print-faults, which runs nothing"),
            ("X --html -", "--html requires a file; only --trace can write to standard output"),
            ("X --trace x --html ./x", "--trace and --html name the same file"),
            ("fyrehose.strom", "there is no scenario 'fyrehose.strom'; did you mean fyrehose.storm? There are .*"),
            ("zzz", "there is no scenario 'zzz'. There are .*"),
        ],
    )
    def test_usage_errors_are_reported_in_one_line(self, simulate: Simulate, arguments: str, complaint: str) -> None:
        status, out, err = simulate(*arguments.split())
        assert (status, out) == (2, "")
        [line] = err.splitlines()
        assert line.startswith("fyrehose simulate: ")
        found = line.removeprefix("fyrehose simulate: ").removesuffix("; see fyrehose simulate --help")
        assert found == complaint if not complaint.endswith(".*") else found.startswith(complaint[:-2])

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ("no_such:X", "there is no module no_such, neither installed nor in {here}"),
            ("toys:Counting", "toys has no scenario Counting; there are Blocking, Deadly, Elsewhere, Impossible, .*"),
            ("toys:Ticker --seed 1 --trace no/such", "no/such: No such file or directory"),
            ("toys:Ticker --seed 1 --html .", ".: Is a directory"),
            ("toys:Ticker --seed 1 --faults none", "none: No such file or directory"),
            ("toys:Ticker --seed 1 --faults toys.py", "line 2 of the faults, 'import os, threading': .*"),
        ],
    )
    def test_unusable_options_are_reported_before_any_run(
        self, simulate: Simulate, monkeypatch: pytest.MonkeyPatch, arguments: str, complaint: str
    ) -> None:
        for module in (runner, single_run):
            monkeypatch.setattr(module, "run_seed", None)
        status, out, err = simulate(*arguments.split())
        assert (status, out) == (2, "")
        complaint = f"fyrehose: {complaint.format(here=os.getcwd())}"
        assert err == f"{complaint}\n" if not complaint.endswith(".*") else err.startswith(complaint[:-2])

    def test_a_file_without_a_class_is_a_usage_error(self, simulate: Simulate) -> None:
        assert simulate("toys.py", "--seed", 1) == (
            2,
            "",
            "fyrehose: no scenario class given; use toys.py:Class\n",
        )

    @pytest.mark.parametrize("how", ["--seed", "--seeds"])
    @pytest.mark.parametrize(
        ("text", "raised"),
        [
            ("class X(:\n", "SyntaxError: invalid syntax"),
            ("1 / 0", "ZeroDivisionError: division by zero"),
            ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
            ("open('not there')", "FileNotFoundError: [Errno 2] No such file or directory: 'not there'"),
            ("raise SystemExit(0)", "SystemExit: 0"),
        ],
    )
    @pytest.mark.parametrize("called", ["spoilt:X", "spoilt.py:X"])
    def test_a_module_that_cannot_be_imported_is_a_usage_error(
        self, simulate: Simulate, toys: Path, how: str, text: str, raised: str, called: str
    ) -> None:
        (toys / "spoilt.py").write_text(text)
        status, out, err = simulate(called, how, 2)
        assert (status, out) == (2, "")
        assert err.startswith("Traceback")
        assert err.endswith(f"\n{raised}\nfyrehose: {called} cannot be imported\n")


class TestOutput:
    def test_a_closed_output_pipe_ends_the_run(self, toys: Path) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        ran = command("toys:Ticker", "--seed", 1, "--trace", "-", capture_output=False, stdout=writing, stderr=-1)
        os.close(writing)
        assert (ran.returncode, ran.stderr.count("Traceback")) == (1, 0)

    def test_a_full_output_disk_is_not_reported_as_a_violation(self, toys: Path) -> None:
        ran = command("toys:Ticker", "--seed", 1, "--trace", "/dev/full")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr == "fyrehose: /dev/full: No space left on device\n"
        ran = command("toys:Ticker", "--seed", 1, "--trace", "trace", "--html", "/dev/full")
        assert (ran.returncode, ran.stderr) == (2, "fyrehose: /dev/full: No space left on device\n")
        with open("/dev/full", "w") as full:
            ran = command("toys:Ticker", "--seed", 1, "--trace", "-", capture_output=False, stdout=full, stderr=-1)
        assert (ran.returncode, ran.stderr.splitlines()[0]) == (
            2,
            "fyrehose: standard output: No space left on device",
        )

    def test_closed_standard_streams_are_reported(self, toys: Path) -> None:
        for number, arguments, complaint in (
            (1, ("--trace", "-"), "standard output: it is closed"),
            (0, ("--faults", "-"), "standard input: it is closed"),
        ):
            ran = command(
                "toys:Ticker", "--seed", 1, *arguments, preexec_fn=lambda number=number: os.close(number), stdin=None
            )
            assert (ran.returncode, ran.stderr) == (2, f"fyrehose: {complaint}\n")


def test_simulate_imports_only_needed_modules(toys: Path) -> None:
    program = (
        "import sys; from fyrehose_twisted.cli.main import main as f\n"
        "try: f({!r})\nexcept SystemExit: print(*sys.modules)"
    )

    def loaded(*arguments: str) -> set[str]:
        ran = subprocess.run(
            [sys.executable, "-c", program.format(arguments)], capture_output=True, text=True, timeout=60, check=True
        )
        return set(ran.stdout.splitlines()[-1].split())

    assert not loaded("--help") & {"twisted", "numpy", "tqdm", "multiprocessing", "fyrehose_twisted.fyrehose.node"}
    modules_of_a_run = loaded("simulate", "toys:Short", "--seed", "1")
    assert not modules_of_a_run & {"twisted.internet.reactor", "fyrehose_twisted.fyrehose.node"}


def test_the_default_backbone_matches_the_service() -> None:
    from fyrehose_twisted.fyrehose.service.connect import DEFAULT_BACKBONE

    assert BACKBONE == DEFAULT_BACKBONE


def test_large_numbers_of_a_summary_have_thousands_separators() -> None:
    from fyrehose_twisted.sim.runs.runner import RunSummary
    from fyrehose_twisted.sim.runs.summary_text import describe_summary

    summary = RunSummary("toy.long", 1_000, 612_000.0, 131.0, 1_204_000, 27_001)
    assert describe_summary(summary, 2) == (
        "toy.long: 1,000 seeds, 170 hours simulated in 131 s on 2 cores: 4,672 simulated hours an hour,"
        " 1.2 million operations, 27,001 faults: everything held"
    )
