"""A journal read in two parts: what is in Parquet files already by Spark itself, and what came later by the source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow.parquet import ExportedFile, final_files
from fyrehose_twisted.journal.arrow.schema import RECORD, ddl
from fyrehose_twisted.journal.errors import NotInJournal
from fyrehose_twisted.journal.format.layout import directory_name
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, cached_reader
from fyrehose_twisted.spark.source.options import EARLIEST, ReadBound, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_with_parquet(
    spark: SparkSession, given: dict[str, str], parquet: str, columns: Sequence[str] = RECORD
) -> DataFrame:
    """Return the records of journals; see :func:`~fyrehose_twisted.spark.read_journal`.

    :param given: options of the source.
    :raises ConfigurationError: if a column is asked for that files do not have, or a stream is there twice.
    :raises JournalError: if the files are those of another journal.
    :raises NotInJournal: if numbers are missing between files.
    """
    missing = [name for name in columns if name not in RECORD]
    if missing:
        raise ConfigurationError(f"Parquet files of journals have no column {missing[0]!r}: read without parquet=")
    options = read_options(given, streaming=False)
    if options.start != ReadBound(EARLIEST):
        raise ConfigurationError("parquet= reads from the beginning: give no startingOffsets or startingTimestamp")
    origins = options.locations()
    streams = [origin.stream for origin in origins]
    if len(set(streams)) < len(streams):
        raise ConfigurationError("parquet= goes with one journal of each stream: nothing says whose the files are")
    paths: list[str] = []
    starts: dict[str, dict[str, int]] = {}
    for origin in origins:
        directory = Path(parquet) / directory_name(origin.stream)
        ends = starts.setdefault(origin.stream, {})
        for file in final_files(cached_reader(origin), Path(parquet)):
            if options.fail_on_data_loss:
                _check_contiguous(origin, file, ends.get(str(file.epoch), file.first))
            paths.append(str(directory / file.name))
            ends[str(file.epoch)] = file.last + 1
    source = spark.read.format("fyrehose").options(**given, columns=",".join(columns))
    if not paths:
        return source.load()
    files = spark.read.schema(ddl(RECORD)).parquet(*paths).select(*columns)
    return files.unionAll(source.option("startingOffsets", json.dumps(starts)).load())


def _check_contiguous(origin: JournalLocation, file: ExportedFile, begin: int) -> None:
    """See that no file is missing between one that ends before ``begin`` and ``file``, but for numbers that are lost.

    :raises NotInJournal: if there is.
    """
    end = file.first - 1
    if begin > end or cached_reader(origin).losses(file.epoch, begin, end) == [(begin, end)]:
        return
    raise NotInJournal(
        f"{begin} to {end} of epoch {file.epoch} of {origin.stream} are in no Parquet file: {origin.journal} dropped"
        " them before they were exported, or a file is gone. failOnDataLoss=false reads on without them"
    )
