"""Control protocol for commands on the same machine: JSON lines over a stream.

Requests:

    {"ask": "status"}
    {"ask": "say", "line": "PRIVMSG #c :hi", "retry": false, "id": 1}
    {"ask": "follow"}
    {"ask": "reload"}

Replies:

    {"status": {...}}
    {"said": "said", "why": "", "id": 1}
    {"following": true}
    {"reloaded": ["joins #c"]}

Events after ``following``:

    {"line": ":nick!user@host PRIVMSG #c :hi", "term": 3, "number": 17}
    {"missed": [18, 20], "term": 3}
    {"leader": 4711, "tag": "b", "term": 4}
    {"error": "..."}

Bytes that are not UTF-8 are written as surrogates. The numbers of snapshots for other nodes are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.hydra.events import LeaderChanged, LineOutcome, LinesMissed, LinesReceived
from fyrehose_twisted.hydra.wire.lines import command_of, untag
from fyrehose_twisted.hydra.wire.state_lines import STATE_COMMAND
from fyrehose_twisted.interfaces import IIrcListener
from fyrehose_twisted.net.control.server import ControlConnection


@implementer(IIrcListener)
class HydraControl(ControlConnection):
    """One control client.

    :param service: the :class:`~fyrehose_twisted.hydra.service.service.HydraService`.
    """

    def __init__(self, service: Any, on_closed: Callable[[Any], None]) -> None:
        super().__init__(service, on_closed)
        self._following = False

    def release(self) -> None:
        """See :meth:`~fyrehose_twisted.net.control.server.ControlConnection.release`."""
        if self._following:
            self._following = False
            self._service.unlisten(self)

    def lines_received(self, lines: LinesReceived) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IIrcListener`."""
        self.send(
            [
                {"line": line_text(line), "term": lines.term, "number": number}
                for number, line in enumerate(lines.lines, lines.first)
                if command_of(line) != STATE_COMMAND
            ]
        )

    def lines_missed(self, lines: LinesMissed) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IIrcListener`."""
        self.send([{"missed": [lines.first, lines.last], "term": lines.term}])

    def leader_changed(self, leader: LeaderChanged) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IIrcListener`."""
        self.send([_leader_message(leader)])

    def handle_request(self, message: dict[str, Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.control.server.ControlConnection.handle_request`."""
        match message:
            case {"ask": "status"}:
                self.send([{"status": self._service.status()}])
            case {"ask": "say", "line": str(line), **rest}:
                self._say(line, bool(rest.get("retry")), rest.get("id"))
            case {"ask": "reload"}:
                try:
                    self.send([{"reloaded": self._service.reload()}])
                except FyrehoseError as error:
                    self.send([{"error": str(error)}])
            case {"ask": "follow"}:
                self.send([{"following": True}])
                if not self._following:
                    self._following = True
                    known = self._service.leader
                    if known is not None:
                        self.leader_changed(known)
                    self._service.listen(self)
            case _:
                known = "status, say, follow or reload"
                self.send([{"error": f"unknown request {json.dumps(message)[:100]}; send {known}"}])

    def _say(self, line: str, retry: bool, number: Any) -> None:
        try:
            saying = self._service.say_and_tell(line, retry=retry)
        except FyrehoseError as error:
            self.send([{"error": str(error), "id": number}])
            return
        self.request_started()

        def said(result: LineOutcome) -> None:
            self.request_finished({"said": result.outcome.value, "why": result.reason, "id": number})

        saying.addCallback(said)


def line_text(line: bytes) -> str:
    """Return a delivered line as text, without its tag."""
    return untag(line)[1].decode("utf-8", "surrogateescape")


def _leader_message(leader: LeaderChanged) -> dict[str, Any]:
    return {"leader": leader.leader, "tag": leader.tag, "term": leader.term}
