"""Union of a journal's exported Parquet files, read natively by Spark, and its later records, read by the source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow.destinations import is_url
from fyrehose_twisted.journal.arrow.parquet import ExportedFile, final_files, place_of
from fyrehose_twisted.journal.arrow.schema import RECORD, ddl
from fyrehose_twisted.journal.errors import NotInJournal
from fyrehose_twisted.journal.tier.location import parse_tier_url
from fyrehose_twisted.journal.tier.objects import ArrowObjects
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, cached_reader
from fyrehose_twisted.spark.source.object_paths import hadoop_options, require_file_system, spark_path
from fyrehose_twisted.spark.source.options import EARLIEST, ReadBound, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_with_parquet(
    spark: SparkSession, given: dict[str, str], parquet: str, columns: Sequence[str] = RECORD
) -> DataFrame:
    """Return the records of journals; see :func:`~fyrehose_twisted.spark.read_journal`.

    :param given: options of the source.
    :param parquet: directory or URL of the exported files.
    :raises ConfigurationError: if the files lack a column, a start is given, a stream has two journals, or Spark has
        no file system for the URL.
    :raises JournalError: if the files were exported from another journal.
    :raises TierError: if the object storage fails, or has another file than the one that was verified.
    :raises NotInJournal: if numbers are missing between files.
    """
    missing = [name for name in columns if name not in RECORD]
    if missing:
        raise ConfigurationError(f"Parquet files of journals have no column {missing[0]!r}: read without parquet=")
    options = read_options(given, streaming=False)
    if options.start != ReadBound(EARLIEST):
        raise ConfigurationError("parquet= reads from the beginning: omit startingOffsets and startingTimestamp")
    origins = options.locations()
    streams = [origin.stream for origin in origins]
    if len(set(streams)) < len(streams):
        raise ConfigurationError("parquet= requires a single journal per stream: files do not name their journal")
    objects, settings = ArrowObjects(), {}
    if is_url(parquet):
        parquet = parse_tier_url(parquet)
        require_file_system(spark, parquet)
        settings = hadoop_options(parquet)
    paths: list[str] = []
    starts: dict[str, dict[str, int]] = {}
    for origin in origins:
        ends = starts.setdefault(origin.stream, {})
        for file in final_files(cached_reader(origin), parquet, objects=objects):
            if options.fail_on_data_loss:
                _check_contiguous(origin, file, ends.get(str(file.epoch), file.first))
            place = place_of(parquet, origin.stream, file.name)
            paths.append(spark_path(place) if is_url(parquet) else str(place))
            ends[str(file.epoch)] = file.last + 1
    source = spark.read.format("fyrehose").options(**given, columns=",".join(columns))
    if not paths:
        return source.load()
    files = spark.read.options(**settings).schema(ddl(RECORD)).parquet(*paths).select(*columns)
    return files.unionAll(source.option("startingOffsets", json.dumps(starts)).load())


def _check_contiguous(origin: JournalLocation, file: ExportedFile, begin: int) -> None:
    """Check that ``file`` begins at ``begin``, the end of the previous file, or that only lost numbers lie between.

    :raises NotInJournal: if other numbers are missing.
    """
    end = file.first - 1
    if begin > end or cached_reader(origin).losses(file.epoch, begin, end) == [(begin, end)]:
        return
    raise NotInJournal(
        f"{begin} to {end} of epoch {file.epoch} of {origin.stream} are in no Parquet file: {origin.journal} dropped"
        " them before they were exported, or a file is missing. failOnDataLoss=false continues without them"
    )
