"""``fyrehose pub``: publish a message a line."""

from __future__ import annotations

import argparse
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.errors import MessageNotKept
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.messages import MAX_DELIVERABLE
from fyrehose_twisted.fyrehose.outbox import OutboxConfig
from fyrehose_twisted.fyrehose.protocol import PublisherProtocol
from fyrehose_twisted.fyrehose.service import join
from fyrehose_twisted.fyrehose.staying import QUIET_TIME
from fyrehose_twisted.terminal import LinePublisher, complain, hint, open_input, secret_of
from fyrehose_twisted.wording import counted

LONGER_THAN_USUAL = QUIET_TIME + 0.5
"""Seconds after which a publisher that has not left says why."""


class MessagePublisher(LinePublisher):
    """Publishes lines to a backbone."""

    def __init__(self, publisher: PublisherProtocol, kept: int) -> None:
        super().__init__(MAX_DELIVERABLE if publisher.config.outbox.raw else MAX_ENVELOPED, "messages")
        self._publisher = publisher
        self._kept = kept

    async def when_room(self) -> None:
        await self._publisher.when_room()

    def publish(self, line: bytes) -> Deferred[int]:
        return self._publisher.publish(line, kept=self._kept)


async def publish(options: argparse.Namespace, reactor: Any) -> int:
    """Run the command and return its exit status."""
    descriptor = open_input(options.file)
    config = ClientConfig(outbox=OutboxConfig(raw=options.raw, timeout=options.timeout), secret=secret_of(options))
    publisher = await join(reactor, PublisherProtocol(config), options.backbone, timeout=options.connect_timeout)
    lines = MessagePublisher(publisher, options.kept)
    publisher.stopped.addErrback(lambda failure: lines.stop(failure.value))
    interrupted = False
    try:
        await lines.read(descriptor, reactor)
    except CancelledError:
        interrupted = True
        lines.stop("interrupted")
    missing = lines.seen - lines.published
    await _leave(publisher, reactor, at_once=interrupted)
    if lines.problem is not None:
        what = "not kept" if isinstance(lines.problem, MessageNotKept) else "not published"
        return complain(f"{missing:,} of {counted(lines.seen, 'message')} {what}: {lines.problem}")
    return 0


async def _leave(publisher: PublisherProtocol, reactor: Any, *, at_once: bool) -> None:
    """Leave, which takes a while where subscribers ask for what they missed; interrupted, leave at once."""
    telling = reactor.callLater(LONGER_THAN_USUAL, hint, "still answering repairs; interrupt to leave")
    try:
        await publisher.leave(at_once=at_once)
    except CancelledError:
        await publisher.leave(at_once=True)
    finally:
        if telling.active():
            telling.cancel()
