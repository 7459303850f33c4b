"""Control protocol for commands on the same machine: JSON lines over a stream.

Requests:

    {"ask": "status"}
    {"ask": "say", "line": "PRIVMSG #c :hi", "retry": false, "id": 1}
    {"ask": "follow"}

Replies:

    {"status": {...}}
    {"said": "said", "why": "", "id": 1}
    {"following": true}

Events after ``following``:

    {"line": ":nick!user@host PRIVMSG #c :hi", "term": 3, "number": 17}
    {"missed": [18, 20], "term": 3}
    {"leader": 4711, "tag": "b", "term": 4}
    {"error": "..."}

Bytes that are not UTF-8 are written as surrogates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.hydra.events import LeaderChanged, LineOutcome, LinesMissed, LinesReceived
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.interfaces import IIrcListener
from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection
from fyrehose_twisted.net.control.json_lines import MAX_REQUEST, JsonLines
from fyrehose_twisted.net.control.server import MAX_UNSENT

MAX_PENDING_SENDS = 256
"""Pending sends of one client at which reading from it is paused."""


@implementer(IIrcListener)
class HydraControl(NodeConnection):
    """One control client.

    :param service: the :class:`~fyrehose_twisted.hydra.service.service.HydraService`.
    """

    def __init__(self, service: Any, on_close: Callable[[HydraControl], None]) -> None:
        super().__init__(JsonLines(MAX_REQUEST), ConnectionLimits(max_unsent=MAX_UNSENT))
        self._service = service
        self._on_close = on_close
        self._pending_sends = 0
        self._following = False

    def messages_received(self, messages: Sequence[dict[str, Any]]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`."""
        for message in messages:
            if not self.is_closed:
                self._handle_request(message)

    def connection_ended(self, reason: str) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.connection_ended`."""
        if self._following:
            self._following = False
            self._service.unlisten(self)
        self._on_close(self)

    def lines_received(self, lines: LinesReceived) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IIrcListener`."""
        self.send(
            [
                {"line": line_text(line), "term": lines.term, "number": number}
                for number, line in enumerate(lines.lines, lines.first)
            ]
        )

    def lines_missed(self, lines: LinesMissed) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IIrcListener`."""
        self.send([{"missed": [lines.first, lines.last], "term": lines.term}])

    def leader_changed(self, leader: LeaderChanged) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IIrcListener`."""
        self.send([_leader_message(leader)])

    def _handle_request(self, message: dict[str, Any]) -> None:
        match message:
            case {"ask": "status"}:
                self.send([{"status": self._service.status()}])
            case {"ask": "say", "line": str(line), **rest}:
                self._say(line, bool(rest.get("retry")), rest.get("id"))
            case {"ask": "follow"}:
                self.send([{"following": True}])
                if not self._following:
                    self._following = True
                    known = self._service.leader
                    if known is not None:
                        self.leader_changed(known)
                    self._service.listen(self)
            case _:
                self.send([{"error": f"unknown request {json.dumps(message)[:100]}; send status, say or follow"}])

    def _say(self, line: str, retry: bool, number: Any) -> None:
        try:
            saying = self._service.say_and_tell(line, retry=retry)
        except FyrehoseError as error:
            self.send([{"error": str(error), "id": number}])
            return
        self._pending_sends += 1
        if self._pending_sends == MAX_PENDING_SENDS:
            self._transport.pauseProducing()

        def said(result: LineOutcome) -> None:
            self._pending_sends -= 1
            if self._pending_sends == MAX_PENDING_SENDS - 1 and not self.is_closed:
                self._transport.resumeProducing()
            self.send([{"said": result.outcome.value, "why": result.reason, "id": number}])

        saying.addCallback(said)


def line_text(line: bytes) -> str:
    """Return a delivered line as text, without its tag."""
    return untag(line)[1].decode("utf-8", "surrogateescape")


def _leader_message(leader: LeaderChanged) -> dict[str, Any]:
    return {"leader": leader.leader, "tag": leader.tag, "term": leader.term}
