"""Journal locations and a worker process's cached readers."""

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
    """Location of one stream's journal. Spark pickles it to workers, and each process opens it once.

    :ivar journal: value of the column ``journal``: the directory, the host and port, or the user's name for it.
    :ivar name: name given by the user; empty if none.
    :ivar tag: the journal's tag when it was located; ``None`` if unknown.
    :ivar stream: URI of the stream.
    :ivar path: local directory of its files; ``None`` for a served journal.
    :ivar server: host and port of its server; ``None`` for a local journal.
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
        """Open a new reader. :raises JournalError: if the journal cannot be read; connection errors also propagate."""
        if self.path is not None:
            if not os.path.isdir(self.path):
                raise JournalError(
                    f"there is no directory {self.path} on this machine: mount it on every worker, or use journal="
                )
            return open_reader(Path(self.path))
        assert self.server is not None, self
        return _cached_remote(*self.server, self.secret, self.timeout).reader(self.stream)


_readers: dict[tuple[int, object], JournalReader | RemoteReader] = {}
"""Readers by process id and journal. Spark forks its workers, and a fork must not share sockets or file positions."""


_remotes: dict[tuple[object, ...], RemoteJournal] = {}
"""Connections by process id and server. The streams of a server share one: servers limit connections per host."""


def _cached_remote(host: str, port: int, secret: bytes | None, timeout: float) -> RemoteJournal:
    key = os.getpid(), host, port, secret
    if key not in _remotes:
        for other in [known for known in _remotes if known[0] != key[0]]:
            del _remotes[other]
        _remotes[key] = RemoteJournal(host, port, secret, timeout)
    return _remotes[key]


def cached_reader(location: JournalLocation) -> JournalReader | RemoteReader:
    """Return this process's reader of a journal, in the state of its last open or refresh.

    :raises JournalReplaced: if the location now holds another journal.
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
    """Locate the journal now in directory ``path``, replacing a cached reader of an earlier journal there."""
    origin = JournalLocation(journal, "", path, name=name)
    try:
        reader = cached_reader(origin)
        reader.refresh()
    except JournalReplaced:
        del _readers[os.getpid(), path]
        reader = cached_reader(origin)
    return replace(origin, stream=reader.stream, tag=reader.tag)


def reader_reaching(location: JournalLocation, epoch: int, next: int) -> JournalReader | RemoteReader:
    """Return a reader whose watermark is at least ``next``; refresh the reader if necessary.

    :raises JournalError: if the journal ends below ``next``.
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
    """Return the paths passed to ``load``: one path or pattern, or several."""
    if options.get("paths"):
        return [str(path) for path in json.loads(options["paths"])]
    return [options["path"]] if options.get("path") else []


def locations_in_path(path: str, name: str = "", *, directory: str = "", label: str = "") -> list[JournalLocation]:
    """Return the journals in the directories that ``path`` names.

    :param path: a stream's journal directory, a directory of several, or a glob pattern for either. Matches of a
        pattern that hold no journal are skipped.
    :param name: name of the journals in place of their paths; checkpoints use it as the key.
    :param directory: base of a relative ``path``; by default this process's working directory.
    :param label: display name if ``name`` is empty.
    :raises JournalError: if there is no journal, or one cannot be read.
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
            raise JournalError(f"{root} is not a directory: name the journal's directory, not a file in it") from None
        except PermissionError:
            raise JournalError(f"permission denied to read {root}: run as a user that may read it") from None
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
    """Return the journals of a journal server.

    :param server: ``HOST:PORT``.
    :param name: as for :func:`locations_in_path`; ``label`` too.
    :raises ConfigurationError: if ``server`` is not of that form.
    :raises JournalError: if the server has no stream yet.
    :raises NotConnected: if the server cannot be reached or rejects the secret.
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
    """Parse ``HOST:PORT`` or ``[IPV6]:PORT`` into host and port; return ``None`` if ``text`` has neither form."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536) or "/" in text:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def filter_by_stream(locations: Sequence[JournalLocation], wanted: str) -> list[JournalLocation]:
    """Return the journals of the stream ``wanted``: a URI, a URI prefix followed by ``*``, or empty for all.

    :raises JournalError: if no journal matches.
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
