"""Streams over WebSockets (RFC 6455), for those who would rather have these than server-sent events.

Twisted has a resource for WebSockets, which takes in messages of any length; here nothing is to be said, and what is
said all the same ends the connection.
"""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import Any

from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping, TextMessage
from wsproto.handshake import H11Handshake
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from fyrehose_twisted.query.records.live import LiveStream
from fyrehose_twisted.query.records.query_params import EpochPosition
from fyrehose_twisted.query.records.record_json import RecordView
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import single_header
from fyrehose_twisted.web.response import bad_request
from fyrehose_twisted.web.streaming import STREAM

GOING_AWAY, UNSUPPORTED = 1001, 1003
"""Codes with which connections are closed."""


def wants_websocket(request: WebRequest) -> bool:
    """Return whether a request asks for a WebSocket."""
    return (single_header(request, b"Upgrade") or b"").lower() == b"websocket"


def check_websocket(request: WebRequest) -> None:
    """See whether a WebSocket can be made of a request.

    :raises Problem: if not.
    """
    _handshake(request)


def _handshake(request: WebRequest) -> Any:
    headers = [(name, value) for name, values in request.requestHeaders.getAllRawHeaders() for value in values]
    handshake = H11Handshake(ConnectionType.SERVER)
    try:
        handshake.initiate_upgrade_connection(headers, request.path.decode("latin-1"))
    except (RemoteProtocolError, LocalProtocolError, ValueError) as error:
        raise bad_request(f"this is no WebSocket: {error}") from None
    return handshake


class WebSocketStream(LiveStream):
    """One client. Each message is an object: a record, or ``{"skipped": ...}``, or ``{"position": ...}``."""

    _socket: Any
    _accepted: bytes

    def start(self) -> None:
        """See :meth:`~fyrehose_twisted.query.records.live.LiveStream.start`."""
        handshake = _handshake(self._request)
        self._accepted = handshake.send(AcceptConnection())
        self._socket = handshake.connection
        super().start()

    def begin(self, first: bytes, kind: bytes = STREAM) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponse.begin`."""
        request = self._request
        request.on_disconnect = self._disconnected
        request.setResponseCode(HTTPStatus.SWITCHING_PROTOCOLS)
        request.startedWriting = 1  # What is written from now on is no answer.
        request.channel.upgraded = self._arrived
        request.registerProducer(self, True)
        request.channel.transport.write(self._accepted + first)
        self.send_pending()

    def heartbeat_text(self, text: bytes) -> bytes:
        """See :meth:`~fyrehose_twisted.query.records.live.LiveStream.heartbeat_text`: comments are for event
        streams."""
        return self.position_text()

    def position_text(self) -> bytes:
        """See :meth:`~fyrehose_twisted.query.records.live.LiveStream.position_text`."""
        before = self.before()
        return self._message(b'{"position":%b}' % (b"null" if before is None else b'"%b"' % before))

    def record_text(self, item: RecordView, text: bytes) -> bytes:
        """See :meth:`~fyrehose_twisted.query.records.live.LiveStream.record_text`."""
        return self._message(text)

    def skipped_text(self, gap: bytes, last: EpochPosition) -> bytes:
        """See :meth:`~fyrehose_twisted.query.records.live.LiveStream.skipped_text`."""
        return self._message(b'{"skipped":%b}' % gap)

    def final_event(self) -> bytes:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponse.final_event`."""
        try:
            return bytes(self._socket.send(CloseConnection(GOING_AWAY, "the service ends it")))
        except LocalProtocolError:  # It is closing already.
            return b""

    def _message(self, text: bytes) -> bytes:
        return bytes(self._socket.send(TextMessage(text.decode())))

    def _arrived(self, data: bytes) -> None:
        try:
            self._socket.receive_data(data)
            for event in self._socket.events():
                if isinstance(event, Ping):
                    if not self.paused:  # Or who does not read could have any number of answers wait.
                        self.write(self._socket.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self._close(event.response(), "gone")
                    return
                elif isinstance(event, Message):
                    self._close(CloseConnection(UNSUPPORTED, "nothing is to be said here"), "said something")
                    return
        except (RemoteProtocolError, LocalProtocolError):
            self._request.transport.abortConnection()

    def _close(self, event: CloseConnection, reason: str) -> None:
        with suppress(LocalProtocolError):
            self.write(self._socket.send(event))
        self.end(reason)
