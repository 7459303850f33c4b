"""Options of the ``fyrehose`` data source."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.process.secret import read_secret
from fyrehose_twisted.sealing.key_file import read_key_ring
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.keys import check_available
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.spark.source.journal_locations import (
    JournalLocation,
    filter_by_stream,
    locations_in_path,
    locations_on_server,
    paths_from_options,
)
from fyrehose_twisted.spark.source.key_column import check_source_columns

EARLIEST, LATEST = "earliest", "latest"
ROWS_PER_PARTITION = 1_000_000

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0}


class JournalSpec(NamedTuple):
    """A user's specification of journals."""

    source: str
    """``path=PATH`` or ``journal=HOST:PORT``."""
    name: str = ""
    """Name given by the user; empty for none."""
    label: str = ""
    """Value of the column ``journal`` if there is no name; empty for the location."""


class ReadBound(NamedTuple):
    """Start or end of a read.

    Exactly one of the three fields is set.
    """

    keyword: str | None = None
    """``earliest`` or ``latest``."""
    time: int | None = None
    """UTC microseconds since 1970."""
    offsets: Mapping[str, Any] | None = None
    """Offsets for :func:`offset_at`: by journal and stream, by stream, or under ``""`` for all."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Validated options of a read. Batch limits apply to streams only.

    :ivar streams: streams to read among the journals found; empty for all.
    :ivar columns: column names, in order.
    :ivar start: start of the read, inclusive.
    :ivar end: end of the read, exclusive.
    :ivar max_rows: limit of numbers in a batch.
    :ivar max_bytes: approximate limit of payload bytes in a batch, estimated from the records at its beginning.
    :ivar min_rows: minimum of numbers in a batch, waited for at most ``max_delay`` seconds.
    :ivar rows_per_partition: numbers per task.
    :ivar fail_on_data_loss: fail if records were dropped or cannot be read; otherwise report them as lost.
    :ivar pushdown: apply filters before reading, of the one query that the table serves.
    :ivar rings: keys of the sealed streams.
    :ivar allow_plain: return payloads of sealed streams that are not sealed, too.
    :ivar directory: base of relative paths; empty for the working directory of the process.
    """

    specs: tuple[JournalSpec, ...]
    stream: str = ""
    streams: tuple[str, ...] = ()
    columns: tuple[str, ...] = RECORD
    start: ReadBound = field(default=ReadBound(EARLIEST))
    end: ReadBound = field(default=ReadBound(LATEST))
    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay: float = 900.0
    rows_per_partition: int = ROWS_PER_PARTITION
    fail_on_data_loss: bool = True
    pushdown: bool = False
    timeout: float = 10.0
    secret: bytes | None = field(default=None, repr=False)
    directory: str = ""
    rings: tuple[KeyRing, ...] = ()
    allow_plain: bool = False

    def openers(self) -> dict[str, PayloadOpener]:
        """Create an opener for each sealed stream."""
        return {ring.stream: PayloadOpener(ring, allow_plain=self.allow_plain) for ring in self.rings}

    def locations(self) -> list[JournalLocation]:
        """Find the journals to read.

        :raises ConfigurationError: if a journal is given twice.
        :raises JournalError: if there is none, or one cannot be read.
        :raises NotConnected: if a server cannot be reached or rejects the secret.
        """
        found: list[JournalLocation] = []
        for place in self.specs:
            kind, _, where = place.source.partition("=")
            if kind == "path":
                found += locations_in_path(where, place.name, directory=self.directory, label=place.label)
            else:
                found += locations_on_server(where, self.secret, self.timeout, place.name, place.label)
        distinct = {(origin.journal, origin.stream): origin for origin in found}
        if len(distinct) < len(found):
            twice = next(one for one in found if found.count(one) > 1 or distinct[one.journal, one.stream] != one)
            raise ConfigurationError(f"{twice.journal} is given twice for stream {twice.stream}")
        chosen = filter_by_stream(found, self.stream)
        return [origin for origin in chosen if origin.stream in self.streams] if self.streams else chosen


def read_options(given: Mapping[str, str], *, streaming: bool | None, directory: str = "") -> ReadOptions:
    """Parse and validate options; their names are case-insensitive.

    :param streaming: true for a stream, false for a batch, ``None`` if not known yet.
    :param directory: base of relative paths unless the option ``directory`` gives one.
    :raises ConfigurationError: if an option is unknown, out of range, or contradicts another.
    """
    options = {name.lower(): value for name, value in given.items()}
    unknown = options.keys() - _KNOWN
    if unknown:
        raise ConfigurationError(f"there is no option {min(unknown)!r}; there are {', '.join(sorted(_NAMES))}")
    if "maxoffsetspertrigger" in options and "maxbytespertrigger" in options:
        raise ConfigurationError("maxOffsetsPerTrigger and maxBytesPerTrigger exclude each other")
    applies = {True: _ONLY_BATCH, False: _ONLY_STREAM, None: ()}[streaming]
    for name in applies:
        if name.lower() in options:
            kind, other = ("a stream", "a batch") if streaming else ("a batch", "a stream")
            raise ConfigurationError(f"{name} does not apply to {kind}, only to {other}: omit it")
    columns = options.get("columns")
    streams = json.loads(options["origins"])["streams"] if options.get("origins") else ()
    wait = _parse_duration(options, "maxTriggerDelay", "15m")
    start, end = (
        _parse_bound(options, "starting", LATEST if streaming else EARLIEST),
        _parse_bound(options, "ending", LATEST),
    )
    if start.time is not None and end.time is not None and start.time > end.time:
        raise ConfigurationError("startingTimestamp is later than endingTimestamp: no record lies between them")
    return ReadOptions(
        specs=_parse_specs(options),
        stream=options.get("stream", ""),
        streams=tuple(streams),
        columns=RECORD if columns is None else check_source_columns([name.strip() for name in columns.split(",")]),
        start=start,
        end=end,
        max_rows=_parse_count(options, "maxOffsetsPerTrigger"),
        max_bytes=_parse_count(options, "maxBytesPerTrigger"),
        min_rows=_parse_count(options, "minOffsetsPerTrigger"),
        max_delay=wait,
        rows_per_partition=_parse_count(options, "rowsPerPartition") or ROWS_PER_PARTITION,
        fail_on_data_loss=_parse_flag(options, "failOnDataLoss", True),
        pushdown=_parse_pushdown(options),
        timeout=_parse_duration(options, "timeout", "10s"),
        secret=read_secret(options["secretfile"]) if options.get("secretfile") else None,
        directory=options.get("directory", directory),
        rings=_read_rings(options),
        allow_plain=_parse_flag(options, "allowPlain", False),
    )


def _read_rings(options: Mapping[str, str]) -> tuple[KeyRing, ...]:
    paths = options.get("sealkeyfile", "")
    rings = tuple(read_key_ring(path.strip()) for path in paths.split(",")) if paths else ()
    if len({ring.stream for ring in rings}) < len(rings):
        raise ConfigurationError(f"sealKeyFile {paths!r} has two files for one stream; put their keys into one file")
    if not rings and "allowplain" in options:
        raise ConfigurationError("allowPlain requires sealKeyFile")
    if rings:
        check_available()
    return rings


def reader_options(
    origins: Sequence[JournalLocation], secret_file: str | None = None, seal_key_files: Sequence[str] = ()
) -> dict[str, str]:
    """Return the source options that select exactly these journals under their current names."""
    places: dict[JournalSpec, None] = {}
    for origin in origins:
        where = f"path={origin.path}" if origin.server is None else f"journal={_format_host_port(origin.server)}"
        places[JournalSpec(where, origin.name, origin.journal)] = None
    streams = sorted({origin.stream for origin in origins})
    options = {"origins": json.dumps({"places": list(places), "streams": streams})}
    if seal_key_files:
        options["sealKeyFile"] = ",".join(seal_key_files)
    return options | ({"secretFile": secret_file} if secret_file else {})


def offset_at(bound: ReadBound, journals: Sequence[str], stream: str, epoch: int) -> int | None:
    """Return the number that ``bound.offsets`` gives for an epoch; ``None`` if it gives none.

    :param journals: possible keys of the journal; the first one present is used.
    :raises ConfigurationError: if the value is not a number.
    """
    assert bound.offsets is not None, bound
    said = dict(bound.offsets)
    if "journals" in said:
        found = next((said["journals"][one].get(stream) for one in journals if one in said["journals"]), None)
    else:
        found = said.get(stream, said.get(""))
    if isinstance(found, Mapping):
        found = found.get(str(epoch))
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        of = f" of stream {stream}, epoch {epoch}," if stream else ""
        raise ConfigurationError(f"offset {found!r}{of} is not a whole number of at least 0")
    return found


def parse_timestamp(text: str) -> int:
    """Parse an ISO 8601 time (UTC if it has no zone) or milliseconds since 1970 into microseconds since 1970.

    :raises ConfigurationError: if ``text`` is neither.
    """
    try:
        if text.strip().lstrip("-").isdecimal():
            return int(text) * 1_000
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a time: use 2026-01-31T12:00:00Z, or milliseconds since 1970"
        ) from None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _parse_specs(options: Mapping[str, str]) -> tuple[JournalSpec, ...]:
    paths, servers = paths_from_options(options), options.get("journal", "")
    if options.get("origins"):
        return tuple(JournalSpec(*map(str, place)) for place in json.loads(options["origins"])["places"])
    if bool(paths) == bool(servers):
        raise ConfigurationError(
            'specify the journals: .load("/directory") or .option("journal", "HOST:PORT,HOST:PORT"), not both'
        )
    where = [f"path={path}" for path in paths] or [f"journal={server.strip()}" for server in servers.split(",")]
    if not options.get("name"):
        return tuple(map(JournalSpec, where))
    names = [name.strip() for name in options["name"].split(",")]
    if len(names) != len(where) or len({*names} - {""}) != len(where):
        raise ConfigurationError(
            f"name {options['name']!r} must give each of the {len(where)} locations a distinct name, comma-separated"
        )
    return tuple(map(JournalSpec, where, names))


def _parse_bound(options: Mapping[str, str], edge: str, default: str) -> ReadBound:
    numbers, time = options.get(f"{edge}offsets"), options.get(f"{edge}timestamp")
    if numbers is not None and time is not None:
        raise ConfigurationError(f"{edge}Offsets and {edge}Timestamp exclude each other")
    if time is not None:
        return ReadBound(time=parse_timestamp(time))
    text = default if numbers is None else numbers.strip()
    if text in (EARLIEST, LATEST):
        return ReadBound(text)
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if isinstance(said, int) and not isinstance(said, bool):
        said = {"": said}
    if not isinstance(said, dict):
        raise ConfigurationError(
            f"{edge}Offsets {text!r} is not earliest, latest, a number, or JSON with a number, or a number per epoch,"
            " for each stream"
        )
    at = ReadBound(offsets=said)
    if "journals" in said:
        journals = said["journals"]
        if not isinstance(journals, dict) or not all(isinstance(streams, dict) for streams in journals.values()):
            raise ConfigurationError(f"{edge}Offsets {text!r} is not an offset of a query: it lacks streams by journal")
    else:
        for stream in said:
            offset_at(at, (), stream, 0)
    return at


def _parse_count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**63):
        raise ConfigurationError(f"{name} {text!r} is not a whole number above 0")
    return int(text)


def _parse_flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name} {text!r} is neither true nor false")
    return text == "true"


def _parse_pushdown(options: Mapping[str, str]) -> bool:
    text = options.get("pushdown", "false").lower()
    if text not in ("false", "once"):
        raise ConfigurationError(
            f"pushdown {text!r} is neither false nor once. Spark applies the conditions of one query to all others of a"
            " loaded table, which then lack rows: choose once if the table is loaded for a single query that uses it in"
            " a single place"
        )
    return text == "once"


def _parse_duration(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name.lower(), default).strip().lower()
    number = text.rstrip("msh")
    unit = text[len(number) :] or "s"
    try:
        seconds = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise ConfigurationError(f"{name} {text!r} is not a duration above 0, such as 500ms, 10s or 15m")
    return seconds


def _format_host_port(server: tuple[str, int]) -> str:
    host, port = server
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_ONLY_BATCH = ("endingOffsets", "endingTimestamp")
_ONLY_STREAM = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_NAMES = (
    "path",
    "paths",
    "journal",
    "name",
    "directory",
    "stream",
    "columns",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "rowsPerPartition",
    "failOnDataLoss",
    "pushdown",
    "timeout",
    "secretFile",
    "sealKeyFile",
    "allowPlain",
)
_KNOWN = {name.lower() for name in (*_NAMES, "origins", "checkpointLocation")}
