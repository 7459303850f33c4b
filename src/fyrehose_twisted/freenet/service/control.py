"""What commands on the same machine ask a freenet node: lines of JSON over a stream.

Asked is with one of

    {"ask": "status"}
    {"ask": "next", "key": "00..."}
    {"ask": "subscribe", "key": "00...", "after": 17}
    {"ask": "publish", "key": "00...", "data": "hello", "number": null, "id": 1, "allow_no_subscribers": false}

and answered with

    {"status": {...}}
    {"next": 18}
    {"following": "00..."}, and then lines such as
    {"key": "00...", "number": 18, "data": "hello"}
    {"key": "00...", "missed": [19, 20]}
    {"key": "00...", "change": "Restarting", "reason": "parent-lost"}
    {"id": 1, "number": 18}
    {"id": 1, "error": "...", "why": "collision", "next": 19}
    {"error": "..."}

``data`` is what was published, without a signature; what is given to ``publish`` with a number has to be signed
already. Bytes that are no UTF-8 stand as surrogates.
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
    Attached,
    Dropped,
    Packet,
    Renumbered,
    Restarting,
    Subscribed,
    SubscribeFailed,
)
from fyrehose_twisted.freenet.service.observers import StreamChange
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET, NONE_SEEN
from fyrehose_twisted.freenet.wire.signing import body, parse_key
from fyrehose_twisted.interfaces import IFreenetListener
from fyrehose_twisted.net.connection import Link, LinkLimits
from fyrehose_twisted.net.control.json_lines import MAX_QUESTION, JsonLines
from fyrehose_twisted.net.control.server import UNREAD

MAX_PUBLISHING = 256
"""Packets of one client that may be waited for; then no more is read from it."""

CHANGES: dict[type[StreamChange], tuple[str, tuple[str, ...]]] = {
    Subscribed: ("Subscribed", ("key", "root", "is_root")),
    SubscribeFailed: ("SubscribeFailed", ("key", "reason")),
    Restarting: ("Restarting", ("key", "reason")),
    Attached: ("Attached", ("key", "parent")),
    Dropped: ("Dropped", ("key",)),
    Renumbered: ("Renumbered", ("key", "first")),
}
"""Name of each change of a stream and of its fields, as clients get them. They are public, whatever the events are
called."""


@implementer(IFreenetListener)
class Control(Link):
    """One client.

    :param service: the :class:`~fyrehose_twisted.freenet.service.service.FreenetService`.
    """

    def __init__(self, service: Any, gone: Callable[[Control], None]) -> None:
        super().__init__(JsonLines(MAX_QUESTION), LinkLimits(unread=UNREAD))
        self._service = service
        self._gone = gone
        self._publishing = 0
        self._joined: set[tuple[bytes, bool]] = set()
        """Streams that the node has for this client, and whether for their packets."""
        self._following: set[bytes] = set()

    def messages_received(self, messages: Sequence[dict[str, Any]]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.Link.messages_received`."""
        for message in messages:
            if not self.over:
                self._asked(message)

    def connection_ended(self, reason: str) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.Link.connection_ended`."""
        self._let_go()
        self._gone(self)

    def hang_up(self) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.Link.hang_up`."""
        self._let_go()
        super().hang_up()

    def packets_received(self, key: bytes, packets: Sequence[Packet]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFreenetListener`."""
        if key in self._following:
            self.send([{"key": key.hex(), "number": number, "data": _text(key, data)} for number, data in packets])

    def packets_missed(self, key: bytes, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFreenetListener`."""
        if key in self._following:
            self.send([{"key": key.hex(), "missed": [first, last]}])

    def stream_changed(self, event: StreamChange) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFreenetListener`."""
        if event.key in self._following:
            name, fields = CHANGES[type(event)]
            change: dict[str, Any] = {**dict(zip(fields, event, strict=True)), "key": event.key.hex(), "change": name}
            if change.get("parent") is not None:
                change["parent"] = f"{change['parent']:016x}"
            self.send([change])

    def _asked(self, message: dict[str, Any]) -> None:
        try:
            match message:
                case {"ask": "status"}:
                    self.send([{"status": self._service.status()}])
                case {"ask": "next", "key": str(text)}:
                    self._next(parse_key(text))
                case {"ask": "subscribe", "key": str(text), **rest}:
                    self._subscribe(parse_key(text), _number(rest.get("after"), "after"))
                case {"ask": "publish", "key": str(text), "data": str(data), **rest}:
                    allow = rest.get("allow_no_subscribers") is True
                    self._publish(text, data, rest.get("number"), rest.get("id"), allow)
                case _:
                    what = json.dumps(message)[:100]
                    self.send([{"error": f"unknown question {what}; ask status, next, subscribe or publish"}])
        except FyrehoseError as error:
            self.send([{"error": str(error)}])

    def _next(self, key: bytes) -> None:
        self._when_connected(
            key,
            lambda: self.send([{"next": self._service.next_number(key)}]),
            lambda error: self.send([{"error": str(error)}]),
        )

    def _subscribe(self, key: bytes, after: int | None) -> None:
        new = key not in self._following
        known = (key, True) in self._joined or (key, False) in self._joined or self._service.is_local(key)
        kept = self._service.kept(key, after) if known and new and after is not None else []
        if new and not self._following:
            self._service.listen(self)
        self._following.add(key)
        self.send([{"following": key.hex()}])
        self._join(key, after, keep=True).addErrback(lambda failure: self.send([{"error": str(failure.value)}]))
        if kept:
            self.packets_received(key, kept)

    def _publish(self, text: str, data: str, number: Any, identity: Any, allow: bool) -> None:
        self._publishing += 1
        if self._publishing == MAX_PUBLISHING:
            self._transport.pauseProducing()

        def publish() -> None:
            packet = data.encode("utf-8", "surrogateescape")
            given = _number(number, "number")
            publishing = self._service.publish(key, packet, number=given, allow_no_subscribers=allow)
            publishing.addCallbacks(lambda given: answer({"number": given}), lambda failure: refuse(failure.value))

        def refuse(error: Any) -> None:
            known = isinstance(error, PublishRefused)
            answer({"error": str(error), **({"why": error.why, "next": error.next} if known else {})})

        def answer(content: dict[str, Any]) -> None:
            self._publishing -= 1
            if self._publishing == MAX_PUBLISHING - 1 and not self.over:
                self._transport.resumeProducing()
            self.send([{"id": identity, **content}])

        try:
            key = parse_key(text)
            _number(number, "number")
        except FyrehoseError as error:
            refuse(error)
        else:
            self._when_connected(key, publish, refuse)

    def _when_connected(self, key: bytes, call: Callable[[], None], fail: Callable[[Any], None]) -> None:
        """Call once the node belongs to a stream; it does so until this client is gone."""

        def connected(result: Any) -> None:
            if isinstance(result, Failure):
                fail(result.value)
            elif not self.over:
                call()

        self._join(key, None, keep=False).addBoth(connected)

    def _join(self, key: bytes, after: int | None, *, keep: bool) -> Deferred[None]:
        joining: Deferred[None]
        if (key, keep) in self._joined:
            joining = self._service.when_connected(key)
            return joining

        def failed(failure: Failure) -> Failure:
            self._joined.discard((key, keep))
            return failure

        self._joined.add((key, keep))
        joining = self._service.subscribe(key, last_seen=after, keep=keep)
        return joining.addErrback(failed)

    def _let_go(self) -> None:
        if self._following:
            self._following.clear()
            self._service.unlisten(self)
        joined, self._joined = self._joined, set()
        for key, keep in joined:
            self._service.unsubscribe(key, keep=keep)


def _number(value: Any, name: str) -> int | None:
    if value is None or (type(value) is int and NONE_SEEN <= value <= MAX_PACKET):
        return value
    raise UnencodableMessage(f"{name} {value!r} is no packet number: give one from 0 to {MAX_PACKET:,}")


def _text(key: bytes, data: bytes) -> str:
    return body(key, data).decode("utf-8", "surrogateescape")
