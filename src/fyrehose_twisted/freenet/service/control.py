"""Control protocol of a freenet node: lines of JSON for commands on the same machine.

A request is one of

    {"ask": "status"}
    {"ask": "next", "key": "00..."}
    {"ask": "subscribe", "key": "00...", "after": 17}
    {"ask": "publish", "key": "00...", "data": "hello", "number": null, "id": 1, "allow_no_subscribers": false}

and an answer is one of

    {"status": {...}}
    {"next": 18}
    {"following": "00..."}, and then lines such as
    {"key": "00...", "number": 18, "data": "hello"}
    {"key": "00...", "missed": [19, 20]}
    {"key": "00...", "change": "Restarting", "reason": "parent-lost"}
    {"id": 1, "number": 18}
    {"id": 1, "error": "...", "why": "collision", "next": 19}
    {"error": "..."}

``data`` is the content of a packet, without the signature. In a request to publish in a signed stream, it is the
signed packet. Bytes that are not UTF-8 are represented by surrogates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import FyrehoseError, PublishRefused, UnencodableMessage
from fyrehose_twisted.freenet.events import (
    Packet,
    ParentChanged,
    ParentLost,
    StreamDropped,
    StreamRenumbered,
    Subscribed,
    SubscribeFailed,
)
from fyrehose_twisted.freenet.service.event_log import StreamChange
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET, NONE_SEEN
from fyrehose_twisted.freenet.wire.signing import parse_key, strip_signature
from fyrehose_twisted.interfaces import IFreenetListener
from fyrehose_twisted.net.control.server import ControlConnection

CHANGE_NAMES: dict[type[StreamChange], tuple[str, tuple[str, ...]]] = {
    Subscribed: ("Subscribed", ("key", "root", "is_root")),
    SubscribeFailed: ("SubscribeFailed", ("key", "reason")),
    ParentLost: ("Restarting", ("key", "reason")),
    ParentChanged: ("Attached", ("key", "parent")),
    StreamDropped: ("Dropped", ("key",)),
    StreamRenumbered: ("Renumbered", ("key", "first")),
}
"""Public names of each change of a stream and of its fields, independent of the names of the events."""


@implementer(IFreenetListener)
class FreenetControl(ControlConnection):
    """Control connection of one client.

    :param service: the :class:`~fyrehose_twisted.freenet.service.service.FreenetService`.
    """

    def __init__(self, service: Any, on_closed: Callable[[Any], None]) -> None:
        super().__init__(service, on_closed)
        self._subscriptions: set[tuple[bytes, bool]] = set()
        """Subscriptions held for this client: key, and whether for the packets."""
        self._followed_keys: set[bytes] = set()

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.close`."""
        self.release()
        super().close()

    def packets_received(self, key: bytes, packets: Sequence[Packet]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFreenetListener`."""
        if key in self._followed_keys:
            self.send(
                [{"key": key.hex(), "number": number, "data": _decode_content(key, data)} for number, data in packets]
            )

    def packets_missed(self, key: bytes, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFreenetListener`."""
        if key in self._followed_keys:
            self.send([{"key": key.hex(), "missed": [first, last]}])

    def stream_changed(self, event: StreamChange) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFreenetListener`."""
        if event.key in self._followed_keys:
            name, fields = CHANGE_NAMES[type(event)]
            change: dict[str, Any] = {**dict(zip(fields, event, strict=True)), "key": event.key.hex(), "change": name}
            if change.get("parent") is not None:
                change["parent"] = f"{change['parent']:016x}"
            self.send([change])

    def handle_request(self, message: dict[str, Any]) -> None:
        """See :meth:`~fyrehose_twisted.net.control.server.ControlConnection.handle_request`."""
        try:
            match message:
                case {"ask": "status"}:
                    self.send([{"status": self._service.status()}])
                case {"ask": "next", "key": str(text)}:
                    self._answer_next(parse_key(text))
                case {"ask": "subscribe", "key": str(text), **rest}:
                    self._subscribe(parse_key(text), _packet_number(rest.get("after"), "after"))
                case {"ask": "publish", "key": str(text), "data": str(data), **rest}:
                    allow = rest.get("allow_no_subscribers") is True
                    self._publish(text, data, rest.get("number"), rest.get("id"), allow)
                case _:
                    text = json.dumps(message)[:100]
                    self.send([{"error": f"unknown request {text}; ask status, next, subscribe or publish"}])
        except FyrehoseError as error:
            self.send([{"error": str(error)}])

    def _answer_next(self, key: bytes) -> None:
        self._when_connected(
            key,
            lambda: self.send([{"next": self._service.next_number(key)}]),
            lambda error: self.send([{"error": str(error)}]),
        )

    def _subscribe(self, key: bytes, after: int | None) -> None:
        new = key not in self._followed_keys
        known = (key, True) in self._subscriptions or (key, False) in self._subscriptions or self._service.is_local(key)
        retained = self._service.retained_packets(key, after) if known and new and after is not None else []
        if new and not self._followed_keys:
            self._service.listen(self)
        self._followed_keys.add(key)
        self.send([{"following": key.hex()}])
        self._hold_subscription(key, after, keep=True).addErrback(
            lambda failure: self.send([{"error": str(failure.value)}])
        )
        if retained:
            self.packets_received(key, retained)

    def _publish(self, text: str, data: str, number: Any, identity: Any, allow: bool) -> None:
        self.request_started()

        def publish() -> None:
            packet = data.encode("utf-8", "surrogateescape")
            given = _packet_number(number, "number")
            publishing = self._service.publish(key, packet, number=given, allow_no_subscribers=allow)
            publishing.addCallbacks(lambda given: answer({"number": given}), lambda failure: refuse(failure.value))

        def refuse(error: Any) -> None:
            known = isinstance(error, PublishRefused)
            answer({"error": str(error), **({"why": error.why, "next": error.next} if known else {})})

        def answer(content: dict[str, Any]) -> None:
            self.request_finished({"id": identity, **content})

        try:
            key = parse_key(text)
            _packet_number(number, "number")
        except FyrehoseError as error:
            refuse(error)
        else:
            self._when_connected(key, publish, refuse)

    def _when_connected(self, key: bytes, call: Callable[[], None], fail: Callable[[Any], None]) -> None:
        """Call ``call`` once the node is connected to a stream; hold the subscription until the client disconnects."""

        def connected(result: Any) -> None:
            if isinstance(result, Failure):
                fail(result.value)
            elif not self.is_closed:
                call()

        self._hold_subscription(key, None, keep=False).addBoth(connected)

    def _hold_subscription(self, key: bytes, after: int | None, *, keep: bool) -> Deferred[None]:
        joining: Deferred[None]
        if (key, keep) in self._subscriptions:
            joining = self._service.when_connected(key)
            return joining

        def failed(failure: Failure) -> Failure:
            self._subscriptions.discard((key, keep))
            return failure

        self._subscriptions.add((key, keep))
        joining = self._service.subscribe(key, last_seen=after, keep=keep)
        return joining.addErrback(failed)

    def release(self) -> None:
        """See :meth:`~fyrehose_twisted.net.control.server.ControlConnection.release`."""
        if self._followed_keys:
            self._followed_keys.clear()
            self._service.unlisten(self)
        joined, self._subscriptions = self._subscriptions, set()
        for key, keep in joined:
            self._service.unsubscribe(key, keep=keep)


def _packet_number(value: Any, name: str) -> int | None:
    if value is None or (type(value) is int and NONE_SEEN <= value <= MAX_PACKET):
        return value
    raise UnencodableMessage(f"{name} {value!r} is not a packet number; give one from 0 to {MAX_PACKET:,}")


def _decode_content(key: bytes, data: bytes) -> str:
    return strip_signature(key, data).decode("utf-8", "surrogateescape")
