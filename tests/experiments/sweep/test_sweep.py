from __future__ import annotations

import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
import pytest

from fyrehose_twisted.errors import ConfigurationError, OperationalError, StateFileError
from fyrehose_twisted.experiments.sweep.cli import sweep as sweep_command
from fyrehose_twisted.experiments.sweep.cli.parser import main
from fyrehose_twisted.experiments.sweep.cli.sweep import _interruptible
from fyrehose_twisted.experiments.sweep.grid import Cell, Grid, make_grid
from fyrehose_twisted.experiments.sweep.metrics import METRICS, RENAMED_METRICS
from fyrehose_twisted.experiments.sweep.network import make_topology, run_network
from fyrehose_twisted.experiments.sweep.results import SweepResults
from fyrehose_twisted.experiments.sweep.rows import (
    DURATION_COLUMNS,
    RunNetwork,
    arrow_schema,
    simulate_row,
    to_arrow_batch,
)
from fyrehose_twisted.experiments.sweep.settings import DEFAULTS
from fyrehose_twisted.experiments.sweep.sweep import count_networks, sweep, unfinished_cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRID = {"n": [200, 300, 400], "keys": 2, "subscribers": 10, "replicas": 20}
VERSIONS = {"fyrehose_twisted": "1", "numpy": "2"}

Sweep = Callable[..., SweepResults]


@pytest.fixture
def fake() -> RunNetwork:
    """Return metrics that depend on the seeds; some networks fail. Defined here so that workers receive the code."""

    def run(cell: Cell) -> dict[str, Any]:
        seeds = cell.seeds()
        if cell.settings.n == 300 and cell.replica == 3:
            raise ValueError("planted,\nin two lines")
        found: dict[str, Any] = dict.fromkeys(METRICS, seeds.experiment / 7)
        broken = "no cycle" if (cell.settings.n, cell.replica) == (400, 5) else None
        return found | {"repair_requests": float("nan"), "took_topology": 0.5, "violation": broken}

    return run


@pytest.fixture
def run_sweep(spark: SparkSession, tmp_path: Path, fake: RunNetwork) -> Sweep:
    """Run the unfinished networks of a sweep: ``run_sweep(name, said=GRID, run=fake, wave_seconds=60)``."""

    def run(name: str, said: dict[str, Any] = GRID, run: RunNetwork = fake, wave_seconds: float = 60.0) -> SweepResults:
        grid, results = make_grid(said, tmp_path), SweepResults(tmp_path / name)
        with results.open_for_writing(grid, VERSIONS) as news:
            assert news == []
            sweep(spark, unfinished_cells(grid, results), results, quiet=True, run=run, wave_seconds=wave_seconds)
        return results

    return run


def waves(results: SweepResults) -> list[str]:
    return sorted(path.name for path in Path(results.table).iterdir())


def stable(results: SweepResults) -> Any:
    return results.read().drop_columns(list(DURATION_COLUMNS))


def expected(said: dict[str, Any], run: RunNetwork) -> Any:
    import pyarrow

    rows = [simulate_row(cell, run) for cell in make_grid(said, Path()).cells()]
    return pyarrow.Table.from_batches([to_arrow_batch(rows)]).drop_columns(list(DURATION_COLUMNS))


def test_a_sweep_produces_the_rows_of_a_sequential_loop(
    run_sweep: Sweep, fake: RunNetwork, spark: SparkSession
) -> None:
    import duckdb

    results = run_sweep("out")
    assert waves(results) == ["wave=00000"]
    assert stable(results).equals(expected(GRID, fake))
    assert results.read().schema == arrow_schema()
    assert count_networks(results) == (60, 1, 1)
    names = ", ".join([*DEFAULTS, *METRICS])
    # Others can read it, too; and what was not measured is no number that spoils a mean.
    found = duckdb.sql(f"SELECT {names}, error FROM '{results.table}/*/*.parquet' WHERE cell = 1 AND replica = 3")
    (row,) = found.fetchall()
    assert row[-1].startswith("ValueError: planted, in two lines (run, line ")
    assert row[len(DEFAULTS) : -1] == (None,) * len(METRICS)
    assert row[: len(DEFAULTS)] == tuple((DEFAULTS | {"n": 300, "keys": 2, "subscribers": 10}).values())
    mean = f"SELECT avg(repair_requests), avg(messages) FROM '{results.table}/*/*.parquet'"
    assert spark.read.parquet(results.table).where("wave = 0 AND error IS NULL").count() == 59
    assert duckdb.sql(mean).fetchall() == [(None, pytest.approx(2**62 / 7, rel=0.3))]


def test_waves_do_not_change_rows(run_sweep: Sweep) -> None:
    one, many = run_sweep("one"), run_sweep("many", wave_seconds=0.01)
    assert len(waves(many)) > 1
    assert stable(many).equals(stable(one))


def test_a_killed_sweep_resumes(run_sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    add = SweepResults.add

    def fail(self: SweepResults, table: Any) -> None:
        if len(self.finished_networks()) > 0:
            (Path(self.table) / ".wave-00001").mkdir()
            raise OSError(28, "No space left on device")
        add(self, table)

    monkeypatch.setattr(SweepResults, "add", fail)
    with pytest.raises(OSError, match="No space"):
        run_sweep("out", wave_seconds=0.01)
    monkeypatch.undo()
    left = SweepResults.finished_networks(results := run_sweep("whole"))
    path = results.directory.with_name("out")
    first = (path / "networks" / "wave=00000" / "part-0.parquet").read_bytes()
    before = SweepResults(path).finished_networks()
    assert 0 < len(before) < len(left)
    assert stable(run_sweep("out", wave_seconds=0.01)).equals(stable(results))
    assert (path / "networks" / "wave=00000" / "part-0.parquet").read_bytes() == first
    assert not (path / "networks" / ".wave-00001").exists()


def test_more_replicas_are_added(run_sweep: Sweep, fake: RunNetwork) -> None:
    run_sweep("out")
    more = GRID | {"replicas": 25}
    assert stable(run_sweep("out", more)).equals(expected(more, fake))
    with pytest.raises(ConfigurationError, match=r"replicas=20: .* has 25 of each cell already"):
        run_sweep("out")


def test_another_grid_is_refused(run_sweep: Sweep, tmp_path: Path) -> None:
    run_sweep("out")
    with pytest.raises(ConfigurationError, match="holds the results of another grid"):
        run_sweep("out", GRID | {"loss": 0.1})
    (tmp_path / "out" / "sweep.json").unlink()
    with pytest.raises(ConfigurationError, match=r"has a table and no sweep\.json"):
        run_sweep("out")
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("Dear")
    with pytest.raises(ConfigurationError, match="holds no sweep"):
        run_sweep("other")
    (other / "sweep.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="is not the manifest of a sweep"):
        run_sweep("other")


def test_two_sweeps_do_not_write_to_one_directory(tmp_path: Path) -> None:
    grid, results = make_grid(GRID, tmp_path), SweepResults(tmp_path / "out")
    with (
        results.open_for_writing(grid, VERSIONS),
        pytest.raises(StateFileError, match="another sweep is writing there"),
        SweepResults(tmp_path / "out").open_for_writing(grid, VERSIONS),
    ):
        pass
    with results.open_for_writing(grid, VERSIONS | {"numpy": "3"}) as news:
        assert news == [f"numpy is 3 here; earlier rows in {tmp_path / 'out'} are of 2"]


def test_a_damaged_wave_is_named(run_sweep: Sweep) -> None:
    results = run_sweep("out")
    (Path(results.table) / "wave=00000" / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(OperationalError, match=r"wave=00000 cannot be read: .*; remove it to compute it again"):
        results.read()
    shutil.rmtree(Path(results.table) / "wave=00000")
    assert count_networks(run_sweep("out")).networks == 60


def test_a_table_of_another_version_is_named(run_sweep: Sweep) -> None:
    results = run_sweep("out", {"n": 200, "subscribers": 10})
    path = Path(results.table) / "wave=00000" / "part-0.parquet"
    parquet.write_table(parquet.read_table(path, partitioning=None).drop_columns(["settle"]), path)
    assert results.finished_networks() == {(0, 0)}
    with pytest.raises(OperationalError, match=r"wave=00000 has no column settle: another version has written it"):
        results.read()


def test_failed_networks_are_simulated_again_with_retry(run_sweep: Sweep, fake: RunNetwork) -> None:
    def fixed(cell: Cell) -> dict[str, Any]:
        return {"messages": 3.0}

    results = run_sweep("out")
    assert results.drop_errors() == 1
    assert results.drop_errors() == 0
    assert count_networks(results) == (59, 0, 1)
    assert count_networks(run_sweep("out", run=fixed)) == (60, 0, 1)
    assert [one for one in results.read(["messages"]).column("messages").to_pylist() if one == 3.0] == [3.0]


def test_a_dying_worker_fails_only_its_own_network(run_sweep: Sweep) -> None:
    def run(cell: Cell) -> dict[str, Any]:
        if cell.number == 1 and cell.replica == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"messages": float(cell.replica)}

    results = run_sweep("out", GRID | {"replicas": 2}, run)
    assert count_networks(results) == (6, 1, 0)
    found = results.read(["messages", "error"]).to_pylist()
    assert [one["messages"] for one in found] == [0.0, 1.0, 0.0, None, 0.0, 1.0]
    assert "a Python worker of Spark was killed" in found[3]["error"]


def test_a_measurement_without_a_column_is_an_error(fake: RunNetwork) -> None:
    (cell,) = make_grid({}, Path()).cells()
    row = simulate_row(cell, lambda cell: {"messages": 1.0, "warmth": 2.0})
    assert row["error"].startswith("LookupError: warmth was measured, but there is no column for it")
    assert row["messages"] is None


SMALL = {"n": 60, "keys": 2, "subscribers": 8, "degree": 6}


def cells(said: dict[str, Any]) -> Grid:
    return make_grid(SMALL | said, Path())


def test_a_network_is_measured() -> None:
    found = run_network(cells({}).cell(0))
    assert set(found) == {*METRICS, "violation", "took_topology"}
    assert not set(METRICS) & set(DEFAULTS)
    assert set(RENAMED_METRICS.values()) < set(METRICS)
    assert (found["streams"], found["living_subscribers"], found["violation"]) == (2.0, 16.0, None)
    assert found["subscribe_success"] == found["publish_success"] == found["delivery_ratio"] == 1.0
    assert math.isnan(found["repair_requests"])
    assert found["refused"] == 0.0


@pytest.mark.parametrize(
    "said",
    [
        {"topology": "random"},
        {"topology": "ring", "degree": 4},
        {"topology": "swapped", "rounds": 5, "lattice": True},
        {"concurrent": True, "packets": 3},
        {"kill": 0.2, "accept": "own"},
        {"kill": 0.2, "on_parent_lost": "teardown"},
        {"churn": 1.0, "duration": 600},
        {"packets": 0, "latency": 0.0},
        {"loss": 0.1, "kill": 0.1, "settle": 30.0},
    ],
    ids=str,
)
def test_equal_cells_produce_equal_networks(said: dict[str, Any]) -> None:
    one, other, next_one = (simulate_row(cells(said | {"replicas": 2}).cell(place), run_network) for place in (0, 0, 1))
    for row in (one, other, next_one):
        assert row["error"] is None, row["error"]
        for name in DURATION_COLUMNS:
            del row[name]
    assert one == other
    assert one["messages"] != next_one["messages"]


def test_the_given_share_of_nodes_is_killed() -> None:
    found = run_network(cells({"kill": 0.25, "subscribers": 60}).cell(0))
    assert found["living_subscribers"] == 2 * 45
    assert found["repair_requests"] > 0


def test_a_network_that_loses_messages_settles_for_a_fixed_time() -> None:
    lossy = {"loss": 0.5, "settle": 50.0}
    found = run_network(cells(lossy | {"concurrent": True, "kill": 0.1}).cell(0))
    # To subscribe, to publish, to mend and to publish.
    assert (found["simulated"], found["violation"]) == (200.0, None)
    # Whoever is answered lets the next one subscribe at once.
    found = run_network(cells(lossy | {"loss": 1e-9}).cell(0))
    assert found["subscribe_success"] == 1.0
    assert found["simulated"] < 100.0 + 16 * 5.0
    # Whoever is not does not keep it from doing so.
    found = run_network(cells(lossy | {"loss": 0.999}).cell(0))
    assert 100.0 < found["simulated"] <= 100.0 + 16 * 50.0


def test_subscriptions_beyond_max_streams_are_refused() -> None:
    found = run_network(cells({"max_streams": 1, "keys": 3, "subscribers": 60}).cell(0))
    assert found["refused"] > 0
    assert found["streams_per_node_max"] == 1.0


def test_a_worker_loads_no_reactor() -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from fyrehose_twisted.experiments.sweep import grid, network, sweep\n"
        f"cell = grid.make_grid({SMALL | {'churn': 1.0}}, Path()).cell(0)\n"
        "network.run_network(cell)\n"
        "print('twisted.internet.reactor' in sys.modules, 'pyspark' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "False False\n"


def test_swapping_makes_scrambled_locations_useful() -> None:
    said = {"topology": "swapped", "n": 300, "degree": 10}
    links = []
    for rounds in (0, 200):
        cell = cells(said | {"rounds": rounds}).cell(0)
        topology = make_topology(cell.settings, cell.seeds())
        ones, others = topology.edges().T
        apart = abs(topology.locations[ones] - topology.locations[others])
        links.append(float(sum(min(one, 1 - one) for one in apart) / len(apart)))
    assert links[0] == pytest.approx(0.25, abs=0.02)
    assert links[1] < 0.2


def test_a_topology_of_a_file_is_simulated(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("".join(f"{one} {(one + step) % 30}\n" for one in range(30) for step in (1, 2)))
    grid = make_grid({"topology": "file", "file": "links", "keys": 1, "subscribers": 5}, tmp_path)
    assert run_network(grid.cell(0))["reach"] == 1.0


def test_a_dry_run_describes_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.toml"
    path.write_text("replicas = 3\nn = [200, 1000]\nlattice = [false, true]\nkill = 0.1\n")
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(path), "--dry-run", "--workers", "2"])
    assert ended.value.code == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:-1] == [
        "grid",
        "  n        200, 1000",
        "  lattice  false, true",
        "  kill     0.1",
        "  4 cells of 3 replicas",
    ]
    assert out[-1].startswith("12 networks, about ")
    assert out[-1].endswith(" on 2; seed 1")
    assert [one.name for one in tmp_path.iterdir()] == ["a.toml"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--workers", "2", "--master", "local[2]"], "--workers applies to this machine only"),
        (["--workers", "0"], "'0' is not a whole number above 0"),
        (["--wave", "0"], "'0' is not a number of seconds above 0"),
        (["--out", "a.toml"], "a.toml is not a directory"),
        (["--conf", "x=1"], "'x=1' is not of the form spark.KEY=VALUE"),
    ],
)
def test_sweep_command_reports_errors_in_one_line(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text("n = 200\n")
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "a.toml", *arguments])
    assert ended.value.code == 3
    assert problem in capsys.readouterr().err


def test_an_interrupt_is_reported_in_one_line() -> None:
    theirs = signal.signal(signal.SIGINT, lambda number, frame: pytest.fail("Spark was asked"))
    try:
        with pytest.raises(KeyboardInterrupt), _interruptible():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert not logging.getLogger("py4j").isEnabledFor(logging.CRITICAL)
    finally:
        signal.signal(signal.SIGINT, theirs)
        logging.disable(logging.NOTSET)


def test_a_failing_session_stop_is_not_reported_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(path: Path) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("Broken pipe")

    monkeypatch.setattr(sweep_command, "read_grid", read)
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "a.toml"])
    said = "fyrehose-experiments: interrupted; run the same command to resume\n"
    assert (ended.value.code, capsys.readouterr().err) == (3, said)


def test_sweep_command_writes_results(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "a.toml", tmp_path / "out"
    path.write_text("replicas = 2\nn = 60\nsubscribers = 5\nkeys = 1\ndegree = 6\n")
    for were_there, simulated in ((0, 2), (2, 0)):
        with pytest.raises(SystemExit) as ended:
            main(["sweep", str(path), "--out", str(out)])
        said, told = capsys.readouterr()
        assert ended.value.code == 0
        assert said.startswith(f"2 networks: {were_there} were there, {simulated} simulated in ")
        assert said.endswith(f"; 0 failed, 0 broke an invariant. Table: {out / 'networks'}\n")
        assert told == ""
    manifest = json.loads((out / "sweep.json").read_text())
    assert manifest["grids"] == [{"name": "", "axes": {"n": [60], "degree": [6.0], "keys": [1], "subscribers": [5]}}]


def test_sweep_command_reports_failed_networks(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "slow.toml"
    path.write_text("n = 60\nsubscribers = 5\nkeys = 1\ndegree = 6\nlatency = [0.05, 1e5]\n")
    for arguments, were_there, simulated in ([], 0, "2 simulated"), ([], 2, "0 simulated"), (["--retry"], 1, "1 simul"):
        with pytest.raises(SystemExit) as ended:
            main(["sweep", str(path), "--quiet", *arguments])
        said, told = capsys.readouterr()
        assert (ended.value.code, told) == (1, "")
        assert said.startswith(f"2 networks: {were_there} were there, {simulated}")
        assert ("(1 of them again)" in said) is bool(arguments)
        assert "; 1 failed, 0 broke an invariant." in said
    errors = SweepResults(tmp_path / "slow").read(["error"]).column("error").to_pylist()
    assert errors[0] is None
    assert "the network is not quiet after" in errors[1]
