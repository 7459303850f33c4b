"""Options and service of ``twistd fyrehose-journal``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.config import MAX_KEEPALIVE_INTERVAL, ClientConfig
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.service.client_tap import parse_start
from fyrehose_twisted.fyrehose.service.connect import DEFAULT_BACKBONE
from fyrehose_twisted.fyrehose.service.journal import JournalService
from fyrehose_twisted.fyrehose.service.options import check_stream_name, float_option
from fyrehose_twisted.journal.errors import JournalInUse
from fyrehose_twisted.journal.format.disk import LOCK_NAME, LocalDirectory
from fyrehose_twisted.journal.format.layout import directory_name
from fyrehose_twisted.journal.remote.server import JournalServerFactory, journal_endpoint
from fyrehose_twisted.journal.retention import Retention, parse_retention
from fyrehose_twisted.journal.store import Journal, JournalConfig, open_journal
from fyrehose_twisted.net.addresses import parse_host_port
from fyrehose_twisted.net.listening import ListeningEndpoint
from fyrehose_twisted.net.options import ServiceOptions, integer_option, protocol_class
from fyrehose_twisted.process.secret import read_secret

MIN_SEGMENT_BYTES, SEGMENTS_PER_RETENTION = 65_536, 8
"""Segment size with a size in ``--retention``: at most the given fraction of it, but at least the minimum in bytes."""

SYNC_INTERVAL_RANGE = (0.001, 3_600.0)
"""Minimum and maximum of ``--fsync`` in seconds."""


class Options(ServiceOptions):
    """Command-line options of the journal."""

    synopsis = "--directory DIR [options]"
    longdesc = (
        "Subscribes to a backbone and stores its stream on disk, for clients that lose messages or start late, and for"
        " `fyrehose journal`. Resumes after a restart."
    )
    optParameters = [
        ["backbone", "b", DEFAULT_BACKBONE, "HOST:PORT of the backbone"],
        ["directory", "d", None, "parent directory of the journal"],
        ["name", "n", "default", "name of the stream, fyrehose://NAME, as set at the backbone"],
        ["from", None, "oldest", "start position of a new journal: live, oldest or a number"],
        ["interface", "i", None, "local IPv4 address [default: by the route to the backbone]"],
        ["port", "p", 0, "local UDP port; 0 for any free port", integer_option("port", 0, 65_535)],
        ["retention", "r", None, "retention of the journal, such as 7d, 50GB or 7d,50GB [default: unlimited]"],
        ["fsync", "f", "batch", "when to make records durable: batch, or an interval in seconds"],
        ["serve", None, None, "endpoint to serve the journal to other machines on, such as tcp:2324 (on loopback)"],
        ["serve-secret-file", None, None, "file with the secret shared with those machines"],
        [
            "keepalive",
            None,
            MAX_KEEPALIVE_INTERVAL,
            "seconds between KEEPALIVEs, 0.1 to 0.9",
            float_option("keepalive"),
        ],
        ["secret-file", None, None, "file with the backbone's secret"],
        ["metrics", None, None, "endpoint to serve Prometheus metrics on, such as tcp:9100 (on loopback)"],
        ["protocol", None, None, "dotted name of your subclass of JournalProtocol"],
    ]

    def postOptions(self) -> None:
        """Check the options and build the configuration."""
        try:
            self._check()
        except (FyrehoseError, ValueError) as error:
            raise usage.UsageError(str(error)) from error

    def _check(self) -> None:
        check_stream_name(self["name"])
        if not self["directory"]:
            raise usage.UsageError("--directory DIR is required")
        # twistd changes to this directory before the service starts.
        start = Path(self.parent["rundir"] if self.parent is not None else ".")
        self["directory"] = (start / self["directory"]).absolute()
        parse_host_port(self["backbone"])
        if self["interface"] is not None:
            try:
                IPv4Address(self["interface"])
            except ValueError:
                raise usage.UsageError(f"--interface {self['interface']!r} is not an IPv4 address") from None
        self["config"] = ClientConfig(
            start=parse_start(self["from"]),
            keepalive_interval=self["keepalive"],
            secret=read_secret(self["secret-file"]) if self["secret-file"] else None,
        )
        retention = parse_retention(self["retention"]) if self["retention"] else Retention()
        self["journal-config"] = _journal_config(retention)
        self["sync-interval"] = _sync_interval(self["fsync"])
        if self["serve-secret-file"] and not self["serve"]:
            raise usage.UsageError("--serve-secret-file requires --serve ENDPOINT")
        self["serve-secret"] = read_secret(self["serve-secret-file"]) if self["serve-secret-file"] else None
        self["class"] = protocol_class(self["protocol"], JournalProtocol) if self["protocol"] else JournalProtocol


def _journal_config(retention: Retention) -> JournalConfig:
    """Return a configuration with small segments for a small retention, because whole segments are deleted."""
    config = JournalConfig(retention=retention)
    if retention.size is None:
        return config
    size = max(MIN_SEGMENT_BYTES, retention.size // SEGMENTS_PER_RETENTION)
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

    stream = f"fyrehose://{options['name']}"
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
    """
    existing = path
    while not os.path.exists(existing):  # Path.exists raises without permission or with a name that is too long.
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        problem = f"{existing} is not a writable directory"
        raise SystemExit(f"fyrehose-journal: --directory {path} cannot be written: {problem}")
    journal = path / directory_name(stream)
    if (journal / LOCK_NAME).exists():
        try:
            LocalDirectory(journal).lock().close()
        except BlockingIOError:
            raise JournalInUse(f"{journal} is in use by another process that writes to it") from None
        except OSError as error:
            raise SystemExit(f"fyrehose-journal: {journal} cannot be locked: {error.strerror}") from None
