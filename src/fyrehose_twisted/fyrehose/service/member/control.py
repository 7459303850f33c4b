"""Control protocol of a member for commands on the same machine: JSON lines over a stream.

Requests:

    {"ask": "status"}
    {"ask": "transfer"}
    {"ask": "transfer", "member": "b"}
    {"ask": "remove", "member": "b"}

Replies:

    {"status": {...}}
    {"status": {...}, "transferring": "b"}
    {"status": {...}, "removing": "b"}
    {"error": "..."}

The replies to commands come before the command has taken effect: the status tells when it has.
"""

from __future__ import annotations

import json
from typing import Any

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.net.control.server import ControlConnection


class MemberControl(ControlConnection):
    """One control client of a :class:`~fyrehose_twisted.fyrehose.service.member.service.MemberService`."""

    def handle_request(self, message: dict[str, Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.control.server.ControlConnection.handle_request`."""
        try:
            self.send([self._reply(message)])
        except FyrehoseError as error:
            self.send([{"error": str(error)}])

    def _reply(self, message: dict[str, Any]) -> dict[str, Any]:
        protocol = self._service.protocol
        match message:
            case {"ask": "status"}:
                return {"status": self._service.status()}
            case {"ask": "transfer", "member": str(name)}:
                return {"transferring": protocol.transfer(name), "status": self._service.status()}
            case {"ask": "transfer", **rest} if rest.get("member") is None:
                return {"transferring": protocol.transfer(), "status": self._service.status()}
            case {"ask": "remove", "member": str(name)}:
                protocol.remove(name)
                return {"removing": name, "status": self._service.status()}
        return {"error": f"unknown request {json.dumps(message)[:100]}; send status, transfer or remove"}
