"""Execution of a sweep on Spark: the unfinished networks of a grid, in waves of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from fyrehose_twisted.experiments.sweep.cost import FIRST_WAVE_SECONDS, WAVE_SECONDS, estimate, take_wave
from fyrehose_twisted.experiments.sweep.grid import Cell, Grid
from fyrehose_twisted.experiments.sweep.network import run_network
from fyrehose_twisted.experiments.sweep.progress import SweepProgress
from fyrehose_twisted.experiments.sweep.results import SweepResults
from fyrehose_twisted.experiments.sweep.rows import (
    ERROR,
    SCHEMA,
    VIOLATION,
    RunNetwork,
    arrow_schema,
    blank_row,
    simulate_row,
    to_arrow_batch,
)
from fyrehose_twisted.spark.connect import require_classic
from fyrehose_twisted.spark.errors import error_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORKER_DIED = "Python worker"
"""Beginning of Spark's message after a worker died, which need not affect the others."""


class SweepCounts(NamedTuple):
    """Numbers of networks in the table of a sweep.

    :ivar failed: networks with an error instead of metrics.
    :ivar violated: networks with a broken invariant.
    """

    networks: int
    failed: int
    violated: int


def unfinished_cells(grid: Grid, results: SweepResults) -> list[Cell]:
    """Return the networks of ``grid`` without a row in ``results``."""
    finished = results.finished_networks()
    return [cell for cell in grid.cells() if (cell.number, cell.replica) not in finished]


def sweep(
    spark: SparkSession,
    cells: Sequence[Cell],
    results: SweepResults,
    *,
    quiet: bool = False,
    run: RunNetwork = run_network,
    wave_seconds: float = WAVE_SECONDS,
) -> None:
    """Simulate networks, and add their rows to ``results``, which must be open for writing.

    Errors of Spark itself are raised unchanged.

    :param wave_seconds: approximate time between writes.
    :raises ConfigurationError: if the session is one of Spark Connect.
    :raises OSError: if rows cannot be written.
    """
    require_classic(spark, "a sweep")
    costs = [estimate(cell) for cell in cells]
    finished = len(results.finished_networks())
    progress = SweepProgress(finished + len(cells), finished, sum(costs), quiet=quiet)
    try:
        _run_waves(_WaveRunner(spark, run, progress), cells, costs, results, wave_seconds)
    finally:
        progress.close()


def count_networks(results: SweepResults) -> SweepCounts:
    """Return the numbers of all networks, failed networks, and networks with a broken invariant."""
    found = results.read([ERROR, VIOLATION])
    failed, violated = (found.num_rows - found.column(name).null_count for name in (ERROR, VIOLATION))
    return SweepCounts(found.num_rows, failed, violated)


def software_versions() -> dict[str, str]:
    """Return the versions of the software that the numbers depend on."""
    return {name: version(name) for name in ("fyrehose_twisted", "numpy")}


def _run_waves(
    job: _WaveRunner, cells: Sequence[Cell], costs: Sequence[float], results: SweepResults, longest: float
) -> None:
    start, seconds, scale = 0, min(FIRST_WAVE_SECONDS, longest), 1.0
    while start < len(cells):
        ahead = [(place, scale * costs[place]) for place in range(start, len(cells))]
        tasks = take_wave(ahead, job.cores, seconds)
        count = sum(len(task.positions) for task in tasks)
        table = job.run(
            [_CellBatch([cells[place] for place in task.positions], task.seconds / scale) for task in tasks]
        )
        results.add(table)
        estimated = sum(costs[start : start + count])
        took = sum(table.column("took").to_pylist())
        scale = min(max(took / estimated, 0.01), 100.0)
        start, seconds = start + count, longest


class _CellBatch(NamedTuple):
    cells: list[Cell]
    seconds: float


class _WaveRunner:
    """Runner of waves on Spark."""

    def __init__(self, spark: SparkSession, run: RunNetwork, progress: SweepProgress) -> None:
        self._spark, self._run_network, self._progress = spark, run, progress

    @property
    def cores(self) -> int:
        """Number of parallel tasks. It grows as machines join a cluster."""
        cores: int = self._spark.sparkContext.defaultParallelism
        return cores

    def run(self, tasks: Sequence[_CellBatch]) -> Any:
        """Return the rows of all networks of the tasks as an Arrow table."""
        import pyarrow

        networks = self._spark.sparkContext.accumulator(0)
        seconds = self._spark.sparkContext.accumulator(0.0)

        def tell(cells: int, cost: float) -> None:
            networks.add(cells)
            seconds.add(cost)

        with self._progress.watching(lambda: (networks.value, seconds.value)):
            rows = self._rows(tasks, tell)
        self._progress.end_wave(sum(len(task.cells) for task in tasks), sum(task.seconds for task in tasks))
        return pyarrow.concat_tables(rows).cast(arrow_schema())

    def _rows(self, tasks: Sequence[_CellBatch], tell: Callable[[int, float], None]) -> list[Any]:
        try:
            return [self._simulate(tasks, tell)]
        except Exception as error:
            line = error_line(error)
            if line is None or _WORKER_DIED not in line:
                raise
        # A network that kills its worker, for instance by exhausting the memory, must not fail the others.
        halves = _halves(tasks)
        if halves is None:
            import pyarrow

            lost = blank_row(tasks[0].cells[0]) | {ERROR: line, "took": 0.0}
            return [pyarrow.Table.from_batches([to_arrow_batch([lost])])]
        return [table for half in halves for table in self._rows(half, tell)]

    def _simulate(self, tasks: Sequence[_CellBatch], tell: Callable[[int, float], None]) -> Any:
        run = self._run_network

        def work(numbers: Iterator[Any]) -> Iterator[Any]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    cells, seconds = tasks[number]
                    # The overhead of a batch is that of a small network.
                    yield to_arrow_batch([simulate_row(cell, run) for cell in cells])
                    tell(len(cells), seconds)

        frame = self._spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, SCHEMA)
        return frame.toArrow()


def _halves(tasks: Sequence[_CellBatch]) -> tuple[list[_CellBatch], list[_CellBatch]] | None:
    """Split the tasks in two; return ``None`` for a single network."""
    if len(tasks) > 1:
        return list(tasks[: len(tasks) // 2]), list(tasks[len(tasks) // 2 :])
    cells, seconds = tasks[0]
    if len(cells) == 1:
        return None
    middle = len(cells) // 2
    return [_CellBatch(cells[:middle], seconds / 2)], [_CellBatch(cells[middle:], seconds / 2)]
