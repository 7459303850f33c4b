"""What the nodes tell: applications of a client, operators of a backbone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, overload

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.packets import Dialect, Holding, Holds
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


_make_message: Callable[[tuple[int, int, bytes, bytes]], Message] = partial(tuple.__new__, Message)
"""What ``Message._make`` does, without a call in Python for each."""


class MessageColumns(NamedTuple):
    """Messages in columns."""

    numbers: Sequence[int]
    times: Sequence[int]
    """When each was received, in UTC microseconds since 1970."""
    payloads: Sequence[bytes]
    """DATA of each, as on the wire."""
    envelope_size: int
    """Bytes to take off each to get what was published."""

    def messages(self) -> Iterator[Message]:
        """Make the messages, one after the other."""
        published = itemgetter(slice(self.envelope_size, None))
        data = map(published, self.payloads) if self.envelope_size else self.payloads
        return map(_make_message, zip(self.numbers, self.times, data, self.payloads, strict=True))


class Messages(Sequence[Message]):
    """Messages in order. Each is made when it is looked at, so that thousands do not all take memory at a time."""

    __slots__ = ("_columns", "_length")

    def __init__(self, columns: Sequence[MessageColumns]) -> None:
        self._columns = columns
        self._length = sum([len(stretch.payloads) for stretch in columns])

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        if len(self._columns) == 1:
            return self._columns[0].messages()
        return chain.from_iterable(map(MessageColumns.messages, self._columns))

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return list(self)[index]
        row = index if index >= 0 else index + self._length
        for numbers, times, payloads, envelope in self._columns:
            if 0 <= row < len(payloads):
                return Message(numbers[row], times[row], payloads[row][envelope:], payloads[row])
            row -= len(payloads)
        raise IndexError(f"message {index} of {self._length}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Messages({list(self)!r})"


class Connected(NamedTuple):
    """Event: the backbone answered a KEEPALIVE, for the first time or again."""


class Disconnected(NamedTuple):
    """Event: the backbone has not answered for 5 s."""


class KeepaliveAcked(NamedTuple):
    """Event: a KEEPALIVE was answered after ``round_trip`` seconds."""

    round_trip: float


class MessagesDelivered(NamedTuple):
    """Event: messages in order, each once."""

    messages: Messages


class JournalsSynced(NamedTuple):
    """Event: durable journals have synced this much, as the backbone tells a client that watches them."""

    holdings: Sequence[Holding]


class ClientFailed(NamedTuple):
    """Event: this client has stopped for good."""

    error: Exception


@dataclass(slots=True)
class ClientTraffic:
    """Messages and REQUESTs of one client since it joined.

    :ivar published: messages of it that were numbered, with :attr:`published_bytes` of DATA.
    :ivar requests: REQUESTs of it that were admitted; the latest came at :attr:`requested_at`.
    """

    published: int = 0
    published_bytes: int = 0
    requests: int = 0
    requested_at: float | None = None
    _delivered: int = 0
    _delivered_bytes: int = 0
    _is_subscribed: bool = False

    def subscribe(self, counters: BackboneCounters, subscribes: bool) -> None:
        """Note that the client subscribes from now on, or no longer."""
        if subscribes != self._is_subscribed:
            # A subscriber is sent all that is published, so nothing is counted for each of them meanwhile.
            sign = -1 if subscribes else 1
            self._delivered += sign * counters.published
            self._delivered_bytes += sign * counters.published_bytes
            self._is_subscribed = subscribes

    def delivered(self, counters: BackboneCounters) -> tuple[int, int]:
        """Return how many messages were sent to the client as they were published, and their bytes of DATA."""
        if not self._is_subscribed:
            return self._delivered, self._delivered_bytes
        return counters.published + self._delivered, counters.published_bytes + self._delivered_bytes


@dataclass(slots=True)
class ServedClient:
    """A client that sent a KEEPALIVE in the last 5 s.

    :ivar source: where its latest KEEPALIVE came from.
    :ivar joined_sequence: the last number that had been given when it joined.
    :ivar token: TOKEN of its latest KEEPALIVE; empty before this backbone got one.
    :ivar holds: what it keeps, if it is a durable journal that has said so.
    :ivar connected_since: when it joined, or when the backbone started that knew it from before.
    :ivar heard_at: when its latest KEEPALIVE came.
    """

    address: Address
    source: Address
    flags: int
    dialect: Dialect
    expires_at: float
    joined_sequence: int = 0
    token: bytes = b""
    holds: Holds | None = None
    connected_since: float = 0.0
    heard_at: float = 0.0
    traffic: ClientTraffic = field(default_factory=ClientTraffic)


@dataclass(frozen=True, slots=True)
class ClientJoined:
    """Event: a client was admitted.

    :ivar was_known: whether the backbone that was here before served it.
    """

    client: ServedClient
    was_known: bool = False


@dataclass(frozen=True, slots=True)
class ClientExpired:
    """Event: a client sent no KEEPALIVE for 5 s."""

    client: ServedClient


@dataclass(frozen=True, slots=True)
class ExistingStreamDetected:
    """Event: ``peer`` holds ``sequence`` of the stream that this backbone was about to number from the start."""

    peer: Address
    sequence: int


@dataclass(frozen=True, slots=True)
class StreamClaimRejected:
    """Event: ``peer`` says that it holds ``sequence`` of the stream, and of ``others`` clients that were asked too not
    one holds anything. The stream is numbered from the start."""

    peer: Address
    sequence: int
    others: int


@dataclass(frozen=True, slots=True)
class NumbersExhausted:
    """Event: all numbers have been given."""


@dataclass(slots=True)
class BackboneCounters:
    """What happened since the start. Drops are counted by reason in ``drops``.

    :ivar repeated: PUSHes of messages that had a number already, which was told again.
    :ivar answered: REQUESTs answered from memory alone.
    :ivar routed: REQUESTs passed on to clients, in whole or in part, with :attr:`forwards` FORWARDs in all.
    :ivar beyond: REQUESTs for numbers that have not been given yet.
    """

    datagrams: int = 0
    published: int = 0
    published_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    keepalives: int = 0
    requests: int = 0
    repeated: int = 0
    answered: int = 0
    routed: int = 0
    beyond: int = 0
    forwards: int = 0


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
    published: int = 0
    publish_failed: int = 0
    unkept: int = 0


class MessagesLost(NamedTuple):
    """Event: numbers ``first`` to ``last`` were given up."""

    first: int
    last: int


class MessagesPublished(NamedTuple):
    """Event: messages came back. Pairs of the ticket that ``publish`` returned and the sequence number."""

    messages: list[tuple[int, int]]


class MessagesExpired(NamedTuple):
    """Event: messages did not come back in time."""

    tickets: list[int]


@dataclass(frozen=True, slots=True)
class PacketDropped:
    """Event: a packet was refused. More from this host for this reason are only counted, for a minute."""

    reason: str
    peer: Address
    detail: str
