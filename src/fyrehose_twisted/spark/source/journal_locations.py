"""Locations of journals, and the readers of a worker."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import glob
from pathlib import Path

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.errors import JournalError, JournalReplaced
from fyrehose_twisted.journal.format.layout import journal_directories
from fyrehose_twisted.journal.format.segment_header import different_tags
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.remote.client import RemoteJournal, RemoteReader


@dataclass(frozen=True, slots=True)
class JournalLocation:
    """One journal of one stream. It is pickled to workers, and each process opens it once.

    :ivar journal: what the column ``journal`` says: the directory, or host and port, or a name that a user gave.
    :ivar name: that a user gave; empty if none was.
    :ivar tag: the journal's own number when it was found; ``None`` if that is not known.
    :ivar stream: URI of the stream.
    :ivar path: the directory of its files, if it has one here.
    :ivar server: host and port of a server that has it otherwise.
    """

    journal: str
    stream: str
    path: str | None = None
    server: tuple[str, int] | None = None
    secret: bytes | None = field(default=None, repr=False)
    timeout: float = 10.0
    name: str = ""
    tag: int | None = None

    def open(self) -> JournalReader | RemoteReader:
        """Return a new reader. :raises JournalError: if it cannot be read any more, and what a connection raises."""
        if self.path is not None:
            if not os.path.isdir(self.path):
                raise JournalError(
                    f"there is no directory {self.path} on this machine; each worker has to have it, or use journal="
                )
            return open_reader(Path(self.path))
        assert self.server is not None, self
        return _cached_remote(*self.server, self.secret, self.timeout).reader(self.stream)


_readers: dict[tuple[int, object], JournalReader | RemoteReader] = {}
"""Readers of this process. Spark forks its workers, and a fork may share neither sockets nor places in files."""


_remotes: dict[tuple[object, ...], RemoteJournal] = {}
"""Likewise. All streams of a server share a connection: it accepts but a few from one host."""


def _cached_remote(host: str, port: int, secret: bytes | None, timeout: float) -> RemoteJournal:
    key = os.getpid(), host, port, secret
    if key not in _remotes:
        for other in [known for known in _remotes if known[0] != key[0]]:
            del _remotes[other]
        _remotes[key] = RemoteJournal(host, port, secret, timeout)
    return _remotes[key]


def cached_reader(location: JournalLocation) -> JournalReader | RemoteReader:
    """Return this process's reader of a journal, as it was when it was opened or refreshed last.

    :raises JournalReplaced: if another journal lies there by now.
    """
    key = os.getpid(), location.path or (location.server, location.stream, location.secret)
    reader = _readers.get(key)
    if reader is not None and different_tags(reader.tag, location.tag):
        reader = None
    if reader is None:
        for other in [known for known in _readers if known[0] != key[0]]:
            del _readers[other]
        reader = _readers[key] = location.open()
        if different_tags(reader.tag, location.tag):
            raise JournalReplaced(location.journal, location.tag, reader.tag)
    return reader


def _locate(journal: str, path: str, name: str) -> JournalLocation:
    """Return the journal that lies in directory ``path`` now, even if another did when this process looked before."""
    origin = JournalLocation(journal, "", path, name=name)
    try:
        reader = cached_reader(origin)
        reader.refresh()
    except JournalReplaced:
        del _readers[os.getpid(), path]
        reader = cached_reader(origin)
    return replace(origin, stream=reader.stream, tag=reader.tag)


def reader_reaching(location: JournalLocation, epoch: int, next: int) -> JournalReader | RemoteReader:
    """Return a reader whose watermark is at ``next`` or above.

    :raises JournalError: if the journal does not reach so far.
    """
    reader = cached_reader(location)
    bounds = reader.bounds(epoch)
    if bounds is None or bounds.next < next:
        reader.refresh()
        bounds = reader.bounds(epoch)
    if bounds is None or bounds.next < next:
        there = "nothing of it" if bounds is None else f"it up to {bounds.next - 1}"
        raise JournalError(
            f"{location.journal} is to be read up to {next - 1} of epoch {epoch} of {location.stream}, and "
            f"holds {there}"
        )
    return reader


def paths_from_options(options: Mapping[str, str]) -> list[str]:
    """Return the paths that a user gave to ``load``: one, which may be a pattern, or several."""
    if options.get("paths"):
        return [str(path) for path in json.loads(options["paths"])]
    return [options["path"]] if options.get("path") else []


def locations_in_path(path: str, name: str = "", *, directory: str = "", label: str = "") -> list[JournalLocation]:
    """Return the journals in the directories that ``path`` names.

    :param path: of one stream's journal, or of several, or a pattern for such. What a pattern fits and is no journal,
        or none yet, is passed over.
    :param name: what to call it instead of by its path, and what it is known by in checkpoints.
    :param directory: what ``path`` is relative to, if it is; by default this process's working directory.
    :param label: what to call it otherwise.
    :raises JournalError: if there is none, or one cannot be read.
    """
    path = path.removeprefix("file://")
    base = "" if os.path.isabs(path) else os.path.join(directory, "")
    is_pattern = not os.path.exists(base + path)
    matches = sorted(glob(path, root_dir=base or None)) if is_pattern else [path]
    found = [base + match for match in matches]
    if not found:
        raise JournalError(f"there is no journal at {path}: no such directory")
    origins = []
    for root in found:
        try:
            directories = journal_directories(Path(root))
        except (NotADirectoryError, FileNotFoundError):
            if is_pattern:
                continue
            raise JournalError(f"{root} is not a directory; name that of a journal, not one of its files") from None
        except PermissionError:
            raise JournalError(f"{root} may not be read by this user") from None
        if not directories and not is_pattern:
            raise JournalError(f"{root} holds no journal")
        for one in directories:
            shown = str(one).removeprefix(base)
            origins.append(_locate(name or label or shown, str(one), name))
    if not origins:
        raise JournalError(f"nothing at {path} holds a journal")
    return origins


def locations_on_server(
    server: str, secret: bytes | None = None, timeout: float = 10.0, name: str = "", label: str = ""
) -> list[JournalLocation]:
    """Return the journals that a server serves.

    :param server: ``HOST:PORT``.
    :param name: as for :func:`locations_in_path`; ``label`` too.
    :raises ConfigurationError: if ``server`` is not of that form.
    :raises NotConnected: if it cannot be reached, or wants another secret.
    """
    address = parse_server_address(server)
    if address is None:
        raise ConfigurationError(f"journal server {server!r} is not of the form HOST:PORT")
    with RemoteJournal(*address, secret, timeout) as remote:
        served = remote.streams()
    if not served:
        raise JournalError(f"the journal server {server} has no stream yet")
    called = name or label or server
    return [JournalLocation(called, one.stream, None, address, secret, timeout, name, one.tag) for one in served]


def parse_server_address(text: str) -> tuple[str, int] | None:
    """Return host and port of ``HOST:PORT``, or of ``[IPV6]:PORT``; ``None`` if ``text`` is not of that form."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536) or "/" in text:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def filter_by_stream(locations: Sequence[JournalLocation], wanted: str) -> list[JournalLocation]:
    """Return those of a stream: its URI, or the beginning of one if it ends in ``*``; all if it is empty.

    :raises JournalError: if there is none.
    """
    if not wanted:
        return list(locations)
    chosen = [
        origin
        for origin in locations
        if (origin.stream.startswith(wanted[:-1]) if wanted.endswith("*") else origin.stream == wanted)
    ]
    if not chosen:
        there = ", ".join(sorted({origin.stream for origin in locations}))
        raise JournalError(f"no journal is of stream {wanted}; there is {there}")
    return chosen
