"""Command ``fyrehose journal``: inspect, check and repair journals, and export Parquet files."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.process.arguments import key_filter_from_options, parse_count, parse_whole_number
from fyrehose_twisted.sim.runs.cli import print_error

# Modules that read journals are imported on demand, as `fyrehose --help` imports this module too.
if TYPE_CHECKING:
    from fyrehose_twisted.framing import StripFraming
    from fyrehose_twisted.journal.cli.cat import StreamPosition
    from fyrehose_twisted.journal.reader import JournalReader
    from fyrehose_twisted.journal.repeat_marking import FindEnvelopes

DESCRIPTION = "Inspect, check and repair journals, and write Parquet files."
POLL_INTERVAL = 0.2
"""Seconds between polls for new records with --follow."""


def add_parser(
    commands: Any,
    payload_reader: Callable[[Sequence[str]], StripFraming],
    envelope_finder: Callable[[str], FindEnvelopes | None],
) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    Parsed options have :func:`run` as their ``run``, like all commands without a reactor.

    :param payload_reader: given key files, returns what strips the protocol's framing from payloads that are printed,
        and opens those of sealed streams.
    :param envelope_finder: returns the function that finds the envelopes of a stream, by which repeats are detected.
    """
    parser: argparse.ArgumentParser = commands.add_parser("journal", help=DESCRIPTION, description=DESCRIPTION)
    inner = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act: Callable[..., int], summary: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = inner.add_parser(name, help=summary, description=summary)
        where = "journal directory of a stream, or a directory of several"
        made.add_argument("directory", type=Path, metavar="DIR", help=where)
        made.add_argument("--stream", metavar="URI", help="select one stream, such as fyrehose://ticks")
        made.set_defaults(run=run, act=act, parser=made, bare=payload_reader, envelopes=envelope_finder)
        return made

    shown = command("ls", _ls, "List the number ranges that journals hold.")
    shown.add_argument("--json", action="store_true", help="print JSON lines")
    cat = command("cat", _cat, "Print records in order, up to the first missing one.")
    cat.add_argument("--epoch", type=parse_whole_number, metavar="N", help="print only this epoch [all]")
    start = "first record: a sequence number, or a time such as 2026-01-31T12:00:00Z or @SECONDS since 1970"
    cat.add_argument("--from", dest="start", type=_parse_position, metavar="WHERE", help=start)
    cat.add_argument(
        "--to", dest="end", type=_parse_position, metavar="WHERE", help="last record to print, in the same form"
    )
    cat.add_argument("--count", type=parse_count, metavar="N", help="stop after N records")
    cat.add_argument("--format", choices=("lines", "json"), default="lines", help="output format [%(default)s]")
    cat.add_argument(
        "--seal-key-file",
        dest="keys",
        action="append",
        default=[],
        metavar="FILE",
        help="open the records of a sealed stream with the keys in FILE, and leave out those that do not open"
        " (repeatable)",
    )
    cat.add_argument("--key", metavar="KEY", help="print only messages with this key")
    cat.add_argument("--key-prefix", metavar="TEXT", help="print only messages with a key that begins with TEXT")
    cat.add_argument("--latest", action="store_true", help="print only the last message of each key")
    cat.add_argument("--raw", action="store_true", help="print payloads as received, with framing and repeats")
    cat.add_argument("--repeats", action="store_true", help="also print repeats of messages")
    cat.add_argument("--follow", action="store_true", help="wait for new records until interrupted")
    command("check", _check, "Read every byte; report damage and missing records. Exits with 1 on damage.")
    repair = command("repair", _repair, "Remove damaged parts and restore missing records from other journals.")
    repair.add_argument(
        "--from",
        dest="others",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="another journal (repeatable)",
    )
    repair.add_argument(
        "--declare-lost", action="store_true", help="then declare missing records lost, so that readers pass them"
    )
    repair.add_argument(
        "--wrap", type=parse_whole_number, metavar="N", help="numbers wrap at N; only if no header has it"
    )
    repair.add_argument("--dry-run", action="store_true", help="change nothing; report what would be done")
    seal = command("seal", _seal, "Seal the active segment and compact all segments.")
    seal.add_argument(
        "--parquet",
        type=_parse_place,
        metavar="DIR",
        help="also write Parquet files below this directory, or a bucket and prefix such as s3://bucket/lake",
    )
    tier = command("tier", _tier, "Move compacted segments to object storage, and keep reading them from there.")
    tier.add_argument(
        "--to", dest="tier", required=True, metavar="URL", help="bucket and prefix, such as s3://bucket/journals"
    )
    tier.add_argument(
        "--after", default="0", metavar="AGE", help="move only segments older than AGE, such as 1d [%(default)s]"
    )
    tier.add_argument(
        "--parquet",
        type=_parse_place,
        metavar="DIR",
        help="first write Parquet files below this directory, or a bucket and prefix such as s3://bucket/lake",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit status: 0 for success, 1 for failure or damage.

    :raises SystemExit: with 2 for wrong usage.
    """
    status = 0
    try:
        for path in _journals(options):
            try:
                status = max(status, options.act(options, path))
            except FyrehoseError as error:
                status = print_error(error)
        if options.act is _ls:
            _print_rows(options)
    except FyrehoseError as error:
        return print_error(error)
    except BrokenPipeError:
        return 0  # The reader of the pipe has closed it.
    except OSError as error:
        return print_error(f"{error.filename or 'input or output'}: {error.strerror or error}")
    return status


def _journals(options: argparse.Namespace) -> list[Path]:
    """Return the journal directories that the options select."""
    from fyrehose_twisted.journal.format.layout import directory_name, journal_directories

    found: list[Path] = journal_directories(options.directory)
    if not found:
        raise ConfigurationError(f"{options.directory} holds no journal, and neither do its subdirectories")
    if options.stream is not None and found != [options.directory]:
        wanted = directory_name(options.stream)
        chosen = [path for path in found if path.name == wanted]
        if not chosen:
            names = ", ".join(path.name for path in found)
            raise ConfigurationError(f"{options.directory} has no journal of {options.stream}; it has {names}")
        found = chosen
    if len(found) > 1 and options.act is _cat:
        hint = f"select one with --stream {_stream(found[0])}"
        raise ConfigurationError(f"{options.directory} has several journals; {hint}")
    if options.act is _ls:
        options.rows = []
    return found


def _stream(path: Path) -> str:
    from fyrehose_twisted.journal.format.layout import stream_from_directory

    return stream_from_directory(path.name) or "URI"


@contextmanager
def _open_readers(options: argparse.Namespace, path: Path) -> Iterator[JournalReader]:
    from fyrehose_twisted.journal.errors import JournalError
    from fyrehose_twisted.journal.reader import open_reader

    with closing(open_reader(path)) as reader:
        if options.stream not in (None, reader.stream):
            raise JournalError(f"{path} is the journal of {reader.stream}, not of {options.stream}")
        yield reader


def _ls(options: argparse.Namespace, path: Path) -> int:
    from fyrehose_twisted.journal.cli.ls import epoch_rows

    with _open_readers(options, path) as reader:
        options.rows += epoch_rows(reader, path)
        for damage in reader.damages:
            print_error(f"{path}: {damage}")
        return 1 if reader.damages else 0


def _print_rows(options: argparse.Namespace) -> None:
    import json

    from fyrehose_twisted.journal.cli.ls import format_journals

    for line in map(json.dumps, options.rows) if options.json else format_journals(options.rows):
        print(line)


def _cat(options: argparse.Namespace, path: Path) -> int:
    from fyrehose_twisted.journal.cli.cat import RecordPrinter
    from fyrehose_twisted.journal.repeat_marking import RepeatMarker

    if options.follow and options.end is not None and options.end.is_time:
        options.parser.error("--follow cannot be combined with a time as --to")
    if sys.stdout is None:
        return print_error("standard output: it is closed")
    if options.raw and options.keys:
        options.parser.error("--raw prints payloads as received, sealed; omit it or --seal-key-file")
    selection = key_filter_from_options(options)
    if options.raw and (options.latest or selection is not None):
        options.parser.error("--raw prints payloads as received, with their keys; omit it or the options about keys")
    if options.latest and options.follow:
        options.parser.error("--latest cannot be combined with --follow: any message may have a later one")
    output = sys.stdout.buffer

    def put(data: bytes) -> None:
        output.write(data)
        output.flush()

    with _open_readers(options, path) as reader:
        cat = RecordPrinter(
            reader,
            put,
            print_error,
            strip_framing=None if options.raw else options.bare(options.keys),
            marker=RepeatMarker(reader, options.envelopes(reader.stream)),
            repeats=options.repeats or options.raw,
            epoch=options.epoch,
            start=options.start,
            end=options.end,
            count=options.count,
            selection=selection,
            latest=options.latest,
            as_json=options.format == "json",
        )
        try:
            while (more := cat.run()) and options.follow:
                cat.report_damages()
                _wait_for_more(reader)
        except KeyboardInterrupt:
            if not options.follow:
                raise
        if more and not options.follow:
            cat.report_damages()
            cat.report_gaps()
        return 1 if cat.damaged else 0


def _wait_for_more(reader: JournalReader) -> None:
    import select

    watch = select.poll()
    try:
        watch.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        watch = select.poll()
    while not reader.refresh():
        began = time.monotonic()
        for _, event in watch.poll(POLL_INTERVAL * 1_000):
            if event & select.POLLERR:
                raise BrokenPipeError
        time.sleep(max(0.0, began + POLL_INTERVAL - time.monotonic()))


def _check(options: argparse.Namespace, path: Path) -> int:
    from fyrehose_twisted.journal.format.disk import has_writer
    from fyrehose_twisted.journal.tier.directory import open_directory
    from fyrehose_twisted.journal.upkeep.check import check

    with _progress_bar(path) as (say, progress):
        writing = has_writer(path)
        checked = check(
            open_directory(path),
            writing=writing,
            on_message=lambda found: say(f"{path}: {'damage: ' if found.damage else ''}{found.text}"),
            progress=progress,
        )
    print(checked.summary())
    return 1 if checked.damaged else 0


def _repair(options: argparse.Namespace, path: Path) -> int:
    from fyrehose_twisted.journal.format.layout import directory_name, journal_directories
    from fyrehose_twisted.journal.reader import open_reader
    from fyrehose_twisted.journal.tier.directory import open_directory
    from fyrehose_twisted.journal.upkeep.repair import repair

    stream = options.stream
    if stream is None and options.others:
        with closing(open_reader(path)) as ours:
            stream = ours.stream
    others: list[JournalReader] = []
    for other in options.others:
        found = journal_directories(other)
        chosen = found if found == [other] else [path for path in found if path.name == directory_name(stream)]
        if not chosen:
            raise ConfigurationError(f"{other} holds no journal of {stream}")
        others += map(open_reader, chosen)
    wrap = options.wrap if options.wrap is not None else others[0].wrap if others else 0
    with ExitStack() as opened, _progress_bar(path) as (say, progress):
        for other in others:
            opened.enter_context(closing(other))
        agreed = repair(
            open_directory(path),
            stream=stream,
            wrap=wrap,
            others=others,
            declare_lost=options.declare_lost,
            dry_run=options.dry_run,
            on_message=lambda text: say(f"{path}: {text}"),
            progress=progress,
        )
    return 0 if agreed else 1


def _seal(options: argparse.Namespace, path: Path) -> int:
    from fyrehose_twisted.journal.errors import JournalInUse
    from fyrehose_twisted.journal.tier.directory import open_directory
    from fyrehose_twisted.journal.upkeep.seal import seal
    from fyrehose_twisted.wording import pluralize

    _check_parquet(options)
    with _open_readers(options, path) as reader:
        stream, wrap = reader.stream, reader.wrap
    try:
        written = seal(open_directory(path), stream, wrap)
        print(f"{stream}: {pluralize(written, 'segment')} compacted")
    except JournalInUse:
        if options.parquet is None:
            raise
        print_error(f"{path} is open for writing in another process; its segments are not compacted")
    _export(options, path)
    return 0


def _check_parquet(options: argparse.Namespace) -> None:
    """Fail before long work if Parquet files cannot be written."""
    from fyrehose_twisted.journal.arrow.destinations import is_url
    from fyrehose_twisted.journal.arrow.parquet import load_pyarrow
    from fyrehose_twisted.journal.tier.location import parse_tier_url

    if options.parquet is not None:
        load_pyarrow()
        if is_url(options.parquet):
            parse_tier_url(options.parquet)


def _export(options: argparse.Namespace, path: Path) -> None:
    """Write Parquet files, if the options ask for them."""
    from fyrehose_twisted.journal.arrow.destinations import is_url
    from fyrehose_twisted.journal.arrow.parquet import export
    from fyrehose_twisted.journal.format.disk import EXPORT_LOCK_NAME
    from fyrehose_twisted.journal.tier.locks import lock_work
    from fyrehose_twisted.wording import pluralize

    if options.parquet is None:
        return
    lock = lock_work(path, EXPORT_LOCK_NAME) if is_url(options.parquet) else nullcontext()
    with lock, _open_readers(options, path) as reader:
        for file in export(reader, options.parquet, on_message=lambda text: print_error(f"{path}: {text}")):
            print(f"{file.name}: {pluralize(file.rows, 'row')}")


def _tier(options: argparse.Namespace, path: Path) -> int:
    from fyrehose_twisted.journal.cli.tier import move_segments
    from fyrehose_twisted.journal.retention import parse_age
    from fyrehose_twisted.journal.tier.location import parse_tier_url

    _check_parquet(options)
    with _open_readers(options, path):
        pass  # It is a journal, and of that stream.
    age = parse_age(options.after)
    parse_tier_url(options.tier)
    _export(options, path)
    return 0 if move_segments(path, options.tier, age, print, print_error) else 1


@contextmanager
def _progress_bar(path: Path) -> Iterator[tuple[Callable[[str], None], Callable[[int], object]]]:
    """Show the bytes read of all segments on a terminal; yield functions to print a line and to add progress."""
    from fyrehose_twisted.journal.format.segment_header import segment_number
    from fyrehose_twisted.journal.tier.directory import tiered_bytes
    from fyrehose_twisted.process.progress import ProgressBar

    total = sum(entry.stat().st_size for entry in path.iterdir() if segment_number(entry.name) is not None)
    total += tiered_bytes(path)
    with ProgressBar(total=total, leave=False, desc=path.name, unit="B", unit_scale=True) as bar:
        yield lambda line: ProgressBar.write(line, file=sys.stdout), bar.update


def _parse_place(text: str) -> Path | str:
    return text if "://" in text else Path(text)


def _parse_position(text: str) -> StreamPosition:
    from fyrehose_twisted.journal.cli.cat import StreamPosition

    if text.isdecimal():
        return StreamPosition(int(text), False)
    try:
        seconds = float(text[1:]) if text.startswith("@") else _parse_time(text)
        return StreamPosition(round(seconds * 1_000_000), True)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a sequence number nor a time such as 2026-01-31T12:00:00Z or @1769860800"
        ) from None


def _parse_time(text: str) -> float:
    """Return seconds since 1970. A time without a zone is local time."""
    return datetime.fromisoformat(text).timestamp()
