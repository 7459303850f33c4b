"""Record streams over WebSockets (RFC 6455), as an alternative to server-sent events.

Clients may not send messages; a message ends the connection. The WebSocket resource of Twisted is not used, as it
accepts messages of any length.
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
"""Close codes."""


def wants_websocket(request: WebRequest) -> bool:
    """Return whether a request asks for a WebSocket."""
    return (single_header(request, b"Upgrade") or b"").lower() == b"websocket"


def check_websocket(request: WebRequest) -> None:
    """Validate the WebSocket handshake of a request.

    :raises HttpError: if it is invalid.
    """
    _handshake(request)


def _handshake(request: WebRequest) -> Any:
    headers = [(name, value) for name, values in request.requestHeaders.getAllRawHeaders() for value in values]
    handshake = H11Handshake(ConnectionType.SERVER)
    try:
        handshake.initiate_upgrade_connection(headers, request.path.decode("latin-1"))
    except (RemoteProtocolError, LocalProtocolError, ValueError) as error:
        raise bad_request(f"invalid WebSocket handshake: {error}") from None
    return handshake


class WebSocketStream(LiveStream):
    """Record stream to one client. Each message is a record, ``{"skipped": ...}`` or ``{"position": ...}``."""

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
        request.startedWriting = 1  # Further writes are not part of the response.
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
            return bytes(self._socket.send(CloseConnection(GOING_AWAY, "the service closes the stream")))
        except LocalProtocolError:  # The connection is already closing.
            return b""

    def _message(self, text: bytes) -> bytes:
        return bytes(self._socket.send(TextMessage(text.decode())))

    def _arrived(self, data: bytes) -> None:
        try:
            self._socket.receive_data(data)
            for event in self._socket.events():
                if isinstance(event, Ping):
                    if not self.paused:  # Otherwise pongs would accumulate for a client that does not read.
                        self.write(self._socket.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self._close(event.response(), "gone")
                    return
                elif isinstance(event, Message):
                    self._close(CloseConnection(UNSUPPORTED, "messages are not accepted"), "said something")
                    return
        except (RemoteProtocolError, LocalProtocolError):
            self._request.transport.abortConnection()

    def _close(self, event: CloseConnection, reason: str) -> None:
        with suppress(LocalProtocolError):
            self.write(self._socket.send(event))
        self.end(reason)
