"""Options and service of ``twistd fyrehose-journal``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.service.journal import JournalService
from fyrehose_twisted.fyrehose.service.options import SubscriberOptions, check_interface, parse_start, start_option
from fyrehose_twisted.journal.remote.server import JournalServerFactory, journal_endpoint
from fyrehose_twisted.journal.store import Journal, JournalConfig, check_unlocked, open_journal
from fyrehose_twisted.journal.upkeep.options import RetentionOption
from fyrehose_twisted.net.listening import ListeningEndpoint
from fyrehose_twisted.net.options import protocol_option
from fyrehose_twisted.process.secret import read_secret

MIN_SEGMENT_BYTES, SEGMENTS_PER_RETENTION = 65_536, 8
"""Segment size with a size in ``--retention``: at most the given fraction of it, but at least the minimum in bytes."""

SYNC_INTERVAL_RANGE = (0.001, 3_600.0)
"""Minimum and maximum of ``--fsync`` in seconds."""


class Options(SubscriberOptions, RetentionOption):
    """Command-line options of the journal."""

    aliases = {"f": "fsync"}
    synopsis = "--directory DIR [options]"
    longdesc = (
        "Subscribes to a backbone and stores its stream on disk, for clients that lose messages or start late, and for"
        " `fyrehose journal`. Resumes after a restart."
    )
    optParameters = [
        ["directory", "d", None, "parent directory of the journal"],
        start_option("oldest"),
        ["interface", "i", None, "local IP address [default: by the route to the backbone]"],
        ["fsync", None, "batch", "when to make records durable: batch, or an interval in seconds"],
        ["serve", None, None, "endpoint to serve the journal to other machines on, such as tcp:2324 (on loopback)"],
        ["serve-secret-file", None, None, "file with the secret shared with those machines"],
        protocol_option("JournalProtocol"),
    ]

    def _check(self) -> None:
        self.check_name()
        if not self["directory"]:
            raise usage.UsageError("--directory DIR is required")
        self["directory"] = self.absolute_path("directory")
        self.check_backbone()
        if self["interface"] is not None:
            self["interface"] = check_interface(self["interface"])
        self["config"] = ClientConfig(
            start=parse_start(self["from"]),
            keepalive_interval=self["keepalive"],
            multicast=bool(self["multicast"]),
            secret=self.read_secret(),
            mac=self.mac_policy,
        )
        self["journal-config"] = _with_small_segments(self.parse_retention())
        self["sync-interval"] = _sync_interval(self["fsync"])
        if self["serve-secret-file"] and not self["serve"]:
            raise usage.UsageError("--serve-secret-file requires --serve ENDPOINT")
        self["serve-secret"] = read_secret(self["serve-secret-file"]) if self["serve-secret-file"] else None
        self.load_protocol(JournalProtocol)


def _with_small_segments(config: JournalConfig) -> JournalConfig:
    """Return ``config`` with small segments for a small retention, because whole segments are deleted."""
    if config.retention.size is None:
        return config
    size = max(MIN_SEGMENT_BYTES, config.retention.size // SEGMENTS_PER_RETENTION)
    return replace(config, segment_bytes=min(config.segment_bytes, size))


def _sync_interval(text: str) -> float | None:
    if text == "batch":
        return None
    low, high = SYNC_INTERVAL_RANGE
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not low <= seconds <= high:
        raise usage.UsageError(f"--fsync {text!r}: choose batch, or an interval of {low:g} to {high:g} s")
    return seconds


def makeService(options: Options) -> IService:
    """Twisted: return the service for ``options``.

    :raises SystemExit: with a message of one line, if the service could not start.
    """
    from twisted.internet import reactor

    stream = options.stream
    path: Path = options["directory"]

    def make_protocol(**keywords: Any) -> JournalProtocol:
        protocol: JournalProtocol = options["class"](options["config"], **keywords)
        return protocol

    try:
        # Report errors now, in one line, while twistd still has the terminal.
        _probe_directory(path, stream)
        serve = _journal_listener(options, reactor) if options["serve"] else None
        service: Any = JournalService(
            lambda: open_journal(path, stream, config=options["journal-config"]),
            make_protocol,
            options["backbone"],
            port=options["port"],
            interface=options["interface"],
            sync_interval=options["sync-interval"],
            serve=serve,
            metrics=options["metrics"],
        )
    except FyrehoseError as error:
        raise SystemExit(f"fyrehose-journal: {error}") from None
    return service  # type: ignore[no-any-return]


def _journal_listener(options: Options, reactor: Any) -> Callable[[Journal], ListeningEndpoint]:
    secret = options["serve-secret"]
    endpoint = journal_endpoint(reactor, options["serve"], secret)

    def serve(journal: Journal) -> ListeningEndpoint:
        factory = JournalServerFactory(lambda: {journal.stream: journal}, secret)
        return ListeningEndpoint("serve", options["serve"], endpoint, factory)

    return serve


def _probe_directory(path: Path, stream: str) -> None:
    """Check that the journal can be written, without creating anything.

    :raises SystemExit: if the directory is not writable.
    :raises JournalInUse: if another process writes to the journal.
    :raises JournalError: if its lock cannot be opened.
    """
    existing = path
    while not os.path.exists(existing):  # Path.exists raises without permission or with a name that is too long.
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        problem = f"{existing} is not a writable directory"
        raise SystemExit(f"fyrehose-journal: --directory {path} cannot be written: {problem}")
    check_unlocked(path, stream)
