"""Demo on a few flights, and its cleanup after an interrupt."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = EXAMPLES / "demo.py"
UNFRIENDLY = """trap '' HUP; umask 077; exec "$0" "$@" <&-"""
"""Shell commands that leave a child with SIGHUP ignored, a tight umask and no standard input."""

VERIFIED = r"\n4\. .*\n   \$ fyrehose-pipeline verify .*\n   -> "


def run(*options: object, shell: str = 'exec "$0" "$@"', **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in a shell."""
    command = ["/bin/sh", "-c", shell, sys.executable, str(DEMO), "--seed", "7", *map(str, options)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, **environment}
    )


def test_demo_without_spark_runs(tmp_path: Path) -> None:
    ran = run("--flights", 1_000, "--no-spark", TMPDIR=str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WRONG" not in ran.stdout
    assert re.search(
        r"\n1\. Start .*\n   -> all of them are running .*\n   Dashboard while this runs: http://127", ran.stdout
    )
    assert re.search(r"\n2\. Publish 1,000 flights; halfway, kill -9 journal 2 .*\n   -> every flight", ran.stdout)
    assert re.search(r"delivered in order +1,000, 1,000, 1,000, at", ran.stdout)
    assert re.search(r"\n3\. Publish 166 of them .* kill -9 the backbone .*\n   -> no number was assigned", ran.stdout)
    assert re.search(r"delivered in order +1,166, 1,166, 1,166, at", ran.stdout)
    assert "\nmake demo: 15 checks passed in " in ran.stdout
    assert len(ran.stdout.splitlines()) < 40
    assert ran.stdout.endswith("\nThe dashboard has ended with the demo; make demo KEEP=1 keeps both running.\n")
    assert "\r" not in ran.stdout + ran.stderr
    assert_nothing_is_left(tmp_path)


@pytest.mark.extended
def test_demo_that_is_kept_goes_on_publishing_until_a_signal(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--keep", "--flights=300", until="Open ") as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "Press Ctrl-C to end it.\n"
        numbers = {overview(demo.announced)["number"]}
        while len(numbers) < 3:  # It ends, or the test is too slow for the suite.
            numbers.add(overview(demo.announced)["number"])
        demo.send_signal(signal.SIGINT)
        rest, error = demo.communicate(timeout=300)
    assert (demo.returncode, error) == (0, "")
    assert rest.splitlines()[-1] == "All processes of the demo have ended."
    assert_nothing_is_left(tmp_path)


@pytest.mark.extended
def test_demo_runs_in_an_unusual_environment(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    nonsense = "http://proxy.invalid:1"
    ran = run(
        *("--flights", 300, "--no-spark", "--verbose"),
        shell=f"cd {elsewhere}; {UNFRIENDLY}",
        TMPDIR=str(tmp_path),
        LC_ALL="POSIX",
        PYTHONUTF8="0",
        http_proxy=nonsense,
        TERM="dumb",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"unlike the source +0\n", ran.stdout)
    assert re.search(r"numbers assigned twice +0\n", ran.stdout)
    assert list(elsewhere.iterdir()) == []
    elsewhere.rmdir()
    assert_nothing_is_left(tmp_path)


@pytest.mark.extended
def test_demo_reports_failed_checks() -> None:
    broken = (
        "import sys; sys.argv = ['demo.py'];"
        f"sys.path.insert(0, {str(EXAMPLES)!r});"
        "import demo, argparse;"
        "demo.flights = lambda limit: [b'{}'] * limit;"
        "options = argparse.Namespace(flights=300, loss=0.0, seed=1, no_spark=True, verbose=False, keep=False);"
        "sys.exit(demo.main(options))"
    )
    ran = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert re.search(r"unlike the source +3  WRONG, expected 0\n   -> WRONG", ran.stdout)
    assert "demo: 2 of 15 checks failed; see WRONG above" in ran.stderr
    assert "checks passed" not in ran.stdout


@pytest.mark.extended
def test_demo_names_a_dead_process_with_the_end_of_its_log(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        (victim,) = [pid for pid, command in processes_in(tmp_path).items() if "demo_links.py" in command]
        os.kill(victim, signal.SIGKILL)
        _, error = demo.communicate(timeout=300)
    assert demo.returncode == 1
    assert "\ndemo: links has ended with signal 9. " in error
    assert "Traceback" not in error
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.extended),
        pytest.param(signal.SIGHUP, marks=pytest.mark.extended),
    ],
)
def test_signal_ends_the_demo_and_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    with running_demo(tmp_path) as demo:
        assert len(processes_in(tmp_path)) == 10
        demo.send_signal(number)
        _, error = demo.communicate(timeout=300)
    assert demo.returncode == 128 + number
    assert error.splitlines()[-1] == f"demo: ended by {number.name}; all its processes have ended"
    assert "Traceback" not in error
    assert_nothing_is_left(tmp_path)


def test_signal_in_a_finalizer_ends_the_demo(tmp_path: Path) -> None:
    program = """if True:
        import os, signal, sys, pathlib, demo_processes
        class Garbage:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)
        with demo_processes.Processes(pathlib.Path(sys.argv[1])) as processes:
            Garbage()
            print("finalized")
            processes.wait_for(lambda: False, "nothing", 20)
    """
    command = [sys.executable, "-c", program, str(tmp_path)]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
    )
    assert ran.stdout == "finalized\n"
    assert ran.stderr.splitlines()[-1] == "demo_processes.Interrupted: ended by SIGTERM"


def verdict(printed: str) -> str:
    """Return a pattern of Spark's verdict on the journals, given the findings of the demo.

    A kill between the write of the state file and the send leaves numbers that were assigned and never sent.
    """
    nobody = sum(map(int, re.findall(r"numbers not delivered +(\d+)", printed)))
    if not nobody:
        return "All is well: .*\n\n"
    return rf"Losses: no journal has {nobody} of .*\n   missing numbers +{nobody}, those not delivered to any client"


@pytest.mark.extended
def test_demo_explains_numbers_that_were_assigned_and_never_sent(tmp_path: Path) -> None:
    program = f"""if True:
        import argparse, pathlib, struct, sys
        sys.path.insert(0, {str(EXAMPLES)!r})
        import demo, demo_network, demo_services

        class Backbone(demo_services.Backbone):
            def last_number(self):
                last = super().last_number() + 2
                with self._state.open("r+b") as state:
                    state.seek(16)
                    state.write(struct.pack("=Q", last))
                return last

        demo_network.Backbone, demo.AGAIN = Backbone, 1
        demo.Demo.count = demo.Demo.draw = lambda self, *arguments: None
        out = pathlib.Path({str(tmp_path)!r})
        options = argparse.Namespace(flights=400, loss=0.05, seed=1, no_spark=False, verbose=False, out=out, keep=False)
        sys.exit(demo.main(options))
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WRONG" not in ran.stdout
    assert re.search(r"numbers afterwards .*; [\d,]+ to [\d,]+ assigned and never sent\n", ran.stdout)
    assert verdict(ran.stdout).startswith("Losses: ")
    assert re.search(VERIFIED + verdict(ran.stdout), ran.stdout)


@pytest.mark.extended
def test_demo_with_spark_compares_journals(tmp_path: Path) -> None:
    ran = run(
        *("--flights", 3_000, "--out", tmp_path / "out"),
        shell=UNFRIENDLY,
        TMPDIR=str(tmp_path),
        LC_ALL="POSIX",
        http_proxy="http://proxy.invalid:1",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WRONG" not in ran.stdout
    assert re.search(VERIFIED + verdict(ran.stdout), ran.stdout)
    assert re.search(r"\n5\. .*\n   \$ fyrehose-pipeline run .*\n   -> 3,500 flights of \d+ carriers", ran.stdout)
    assert re.search(r"\n6\. .*\n   \$ fyrehose-pipeline report .*\n   -> ", ran.stdout)
    assert "\nmake demo: 19 checks passed in " in ran.stdout
    assert len(ran.stdout.splitlines()) < 55
    assert (tmp_path / "out" / "report.html").stat().st_size > 1_000_000
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert processes_in(tmp_path) == {}


class RunningDemo(subprocess.Popen[str]):
    """Running demo.

    :ivar announced: line that the fixture waited for.
    """

    announced = ""


def overview(line: str) -> Any:
    """Return the backbone in the topology on the dashboard whose address is in a line."""
    found = re.search(r"http://127[^ ]+", line)
    assert found, line
    with urlopen(f"{found[0]}overview", timeout=60) as response:
        nodes = json.load(response)["topology"]["nodes"]
    return next(node for node in nodes if node["name"] == "backbone")


@contextmanager
def running_demo(directory: Path, *options: str, until: str = "2.") -> Iterator[RunningDemo]:
    """Start the demo and wait until it prints a line that begins with ``until``, by default while it publishes."""
    demo = RunningDemo(
        [sys.executable, str(DEMO), "--no-spark", "--seed", "7", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    assert demo.stdout is not None
    try:
        while not (line := demo.stdout.readline()).startswith(until):
            assert line, "it has ended early"
        demo.announced = line
        yield demo
    finally:
        demo.terminate()  # It ends its own processes.
        demo.communicate()


def processes_in(directory: Path) -> dict[int, str]:
    """Return the command of each process whose working directory is below a directory."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(directory):
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def assert_nothing_is_left(directory: Path) -> None:
    """Check that a demo with ``directory`` for its temporary files left no file and no process."""
    assert list(directory.iterdir()) == []
    assert processes_in(directory) == {}
