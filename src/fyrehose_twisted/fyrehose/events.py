"""What the nodes tell: applications of a client, operators of a backbone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.messages import Dialect
from fyrehose_twisted.record import Record


class Message(NamedTuple):
    """A message as a subscriber gets it."""

    sequence: int
    received_at: int
    """UTC microseconds since 1970."""
    data: bytes
    """What was published, without the envelope."""
    payload: bytes
    """DATA as it was on the wire."""

    def record(self, stream: str) -> Record:
        """Return this as a record of ``stream``."""
        return Record(stream, 0, self.sequence, self.received_at, self.payload)


_message: Callable[[tuple[int, int, bytes, bytes]], Message] = partial(tuple.__new__, Message)
"""What ``Message._make`` does, without a call in Python for each."""


def as_messages(first: int, times: list[int], payloads: list[bytes], envelope: int = 0) -> list[Message]:
    """Return consecutive messages.

    :param first: number of the first.
    :param times: when each was received.
    :param payloads: DATA of each, as on the wire.
    :param envelope: bytes to take off each to get what was published.
    """
    data = [payload[envelope:] for payload in payloads] if envelope else payloads
    return list(map(_message, zip(count(first), times, data, payloads, strict=False)))


class Connected(NamedTuple):
    """Event: the backbone answered a KEEPALIVE, for the first time or again."""


class Disconnected(NamedTuple):
    """Event: the backbone has not answered for 5 s."""


class Acknowledged(NamedTuple):
    """Event: a KEEPALIVE was answered after ``round_trip`` seconds."""

    round_trip: float


class Delivered(NamedTuple):
    """Event: messages in order, each once."""

    messages: list[Message]


class Failed(NamedTuple):
    """Event: this client has stopped for good."""

    error: Exception


@dataclass(slots=True)
class ServedClient:
    """Somebody who sent a KEEPALIVE in the last 5 s."""

    address: Address
    source: Address
    flags: int
    dialect: Dialect
    expires_at: float


@dataclass(frozen=True, slots=True)
class ClientJoined:
    """Event: a client was admitted."""

    client: ServedClient


@dataclass(frozen=True, slots=True)
class ClientExpired:
    """Event: a client sent no KEEPALIVE for 5 s."""

    client: ServedClient


@dataclass(frozen=True, slots=True)
class StreamKnown:
    """Event: ``peer`` holds ``sequence`` of the stream that this backbone was about to number from the start."""

    peer: Address
    sequence: int


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Event: all numbers have been given."""


@dataclass(slots=True)
class ClientCounters:
    """What happened since the start. Drops are counted by reason in ``drops``."""

    received: int = 0
    delivered: int = 0
    duplicates: int = 0
    repeats: int = 0
    repaired: int = 0
    lost: int = 0
    requests: int = 0
    pushes: int = 0
