"""Events and counters of backbone and client nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, Self, overload

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.packets import Dialect, Holding, Holds
from fyrehose_twisted.record import Record


class Message(NamedTuple):
    """Message delivered to a subscriber."""

    sequence: int
    received_at: int
    """UTC microseconds since 1970."""
    data: bytes
    """Published data, without the envelope, the key and the seal."""
    payload: bytes
    """DATA as received from the wire."""

    @property
    def key(self) -> bytes | None:
        """Key of the message; ``None`` if it has none."""
        return None

    def record(self, stream: str) -> Record:
        """Return the message as a record of ``stream``."""
        return Record(stream, 0, self.sequence, self.received_at, self.payload)


class KeyedMessage(Message):
    """Message with a key. Messages without one are plain tuples, so that keys cost them nothing."""

    _key: bytes

    @property
    def key(self) -> bytes:
        """Key of the message."""
        return self._key

    def _replace(self, **fields: Any) -> Self:
        replaced = super()._replace(**fields)
        replaced._key = self._key
        return replaced


_make_message: Callable[[tuple[int, int, bytes, bytes]], Message] = partial(tuple.__new__, Message)
"""Equivalent of ``Message._make`` without a Python call per message."""


def _make_keyed_message(columns: tuple[int, int, bytes, bytes], key: bytes | None) -> Message:
    if key is None:
        return _make_message(columns)
    message = KeyedMessage._make(columns)
    message._key = key
    return message


class MessageColumns(NamedTuple):
    """Consecutive messages in columnar form."""

    numbers: Sequence[int]
    times: Sequence[int]
    """Times of receipt, in UTC microseconds since 1970."""
    payloads: Sequence[bytes]
    """DATA as received from the wire."""
    envelope_size: int
    """Bytes of envelope at the start of each payload."""
    opened: Sequence[bytes] | None = None
    """Published data of payloads that are sealed or have keys; ``None`` if they have only envelopes."""
    keys: Sequence[bytes | None] | None = None
    """Keys of the messages; ``None`` if no message has one."""

    def messages(self) -> Iterator[Message]:
        """Yield the messages."""
        data: Iterable[bytes]
        if self.opened is not None:
            data = self.opened
        elif self.envelope_size:
            data = map(itemgetter(slice(self.envelope_size, None)), self.payloads)
        else:
            data = self.payloads
        columns = zip(self.numbers, self.times, data, self.payloads, strict=True)
        return map(_make_message, columns) if self.keys is None else map(_make_keyed_message, columns, self.keys)


class Messages(Sequence[Message]):
    """Sequence of messages. Each message is created on access, so that thousands do not take memory at once."""

    __slots__ = ("_columns", "_length")

    def __init__(self, columns: Sequence[MessageColumns]) -> None:
        self._columns = columns
        self._length = sum([len(column.payloads) for column in columns])

    @property
    def payload_bytes(self) -> int:
        """Size of all payloads in bytes."""
        return sum([sum(map(len, column.payloads)) for column in self._columns])

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
        for numbers, times, payloads, envelope, opened, keys in self._columns:
            if 0 <= row < len(payloads):
                data = payloads[row][envelope:] if opened is None else opened[row]
                key = None if keys is None else keys[row]
                return _make_keyed_message((numbers[row], times[row], data, payloads[row]), key)
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


class LeaderChanged(NamedTuple):
    """Event: a member of a group of backbones leads the stream in ``term``, as far as this client knows."""

    term: int
    leader: Address


class GroupAnnounced(NamedTuple):
    """Event: the backbone sends to a multicast group, to which the client wants to listen."""

    group: Address
    backbone: Address
    """Sender of the group's datagrams."""


class GroupAbandoned(NamedTuple):
    """Event: the client listens no longer to the multicast group: its backbone is another one."""


class GroupHeard(NamedTuple):
    """Event: the client hears the multicast group, and is served by it from now on."""

    group: Address


class GroupSilent(NamedTuple):
    """Event: the multicast group brings nothing, so the backbone sends to the client itself.

    :ivar was_heard: whether it did before.
    """

    group: Address
    was_heard: bool


class MacsAgreed(NamedTuple):
    """Event: the backbone has proved that it knows the secret, so nothing without its MAC is accepted from now on."""

    backbone: Address


class MacsNotOffered(NamedTuple):
    """Event: the backbone has answered without a MAC, so a forged DELIVER would be accepted."""

    backbone: Address


class KeepaliveAcked(NamedTuple):
    """Event: a KEEPALIVE was answered after ``round_trip`` seconds."""

    round_trip: float


class MessagesDelivered(NamedTuple):
    """Event: messages in order, each once."""

    messages: Messages


class JournalsSynced(NamedTuple):
    """Event: the backbone reported the progress of durable journals to a client that watches them."""

    holdings: Sequence[Holding]


class ClientFailed(NamedTuple):
    """Event: the client stopped because of an error."""

    error: Exception


@dataclass(slots=True)
class ClientTraffic:
    """Messages and REQUESTs of one client since it joined.

    :ivar published: numbered messages of the client, with :attr:`published_bytes` of DATA.
    :ivar requests: admitted REQUESTs of the client, the latest at :attr:`requested_at`.
    """

    published: int = 0
    published_bytes: int = 0
    requests: int = 0
    requested_at: float | None = None
    _delivered: int = 0
    _delivered_bytes: int = 0
    _is_subscribed: bool = False

    def subscribe(self, counters: BackboneCounters, subscribes: bool) -> None:
        """Record whether the client subscribes from now on."""
        if subscribes != self._is_subscribed:
            # Subscribers receive every published message, so the difference of two totals replaces a count per client.
            sign = -1 if subscribes else 1
            self._delivered += sign * counters.published
            self._delivered_bytes += sign * counters.published_bytes
            self._is_subscribed = subscribes

    def delivered(self, counters: BackboneCounters) -> tuple[int, int]:
        """Return the number of live messages sent to the client, and their bytes of DATA."""
        if not self._is_subscribed:
            return self._delivered, self._delivered_bytes
        return counters.published + self._delivered, counters.published_bytes + self._delivered_bytes


@dataclass(slots=True)
class ServedClient:
    """Client that sent a KEEPALIVE in the last 5 s.

    :ivar source: source address of its latest KEEPALIVE.
    :ivar joined_sequence: last number assigned before it joined.
    :ivar token: TOKEN of its latest KEEPALIVE; empty until this backbone received one.
    :ivar holds: latest HOLDS of a durable journal.
    :ivar connected_since: time at which it joined, or at which the backbone restarted with it in its table.
    :ivar heard_at: time of its latest KEEPALIVE.
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

    :ivar was_known: whether the client was restored from the state of the previous backbone process.
    """

    client: ServedClient
    was_known: bool = False


@dataclass(frozen=True, slots=True)
class ClientExpired:
    """Event: a client sent no KEEPALIVE for 5 s."""

    client: ServedClient


@dataclass(frozen=True, slots=True)
class ExistingStreamDetected:
    """Event: ``peer`` holds ``sequence`` of a stream that this backbone was about to number from 1."""

    peer: Address
    sequence: int


@dataclass(frozen=True, slots=True)
class StreamClaimRejected:
    """Event: ``peer`` claims to hold ``sequence`` of the stream, but none of ``others`` queried clients holds a
    message. The stream is numbered from 1."""

    peer: Address
    sequence: int
    others: int


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Event: this member of a group numbers messages now.

    :ivar term: its term.
    :ivar held_up_to: highest number of the earlier terms that somebody holds. The numbers between it and ``first`` were
        never given, or are gone.
    :ivar first: first number of the term.
    :ivar answers: number of clients that told what they hold.
    :ivar seconds: time that their answers took.
    """

    term: int
    held_up_to: int
    first: int
    answers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """Event: the leader of this member's group has changed.

    :ivar term: current term.
    :ivar leader: name of the leader; ``None`` if none is known.
    :ivar leads: whether this member leads.
    """

    term: int
    leader: str | None
    leads: bool


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Event: the members of the group have changed. ``names`` are their names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumbersExhausted:
    """Event: the last sequence number was assigned."""


@dataclass(slots=True)
class BackboneCounters:
    """Counters of a backbone since its start. Drops are counted by reason in ``drops``.

    :ivar repeated: PUSHes of messages that were already numbered. The backbone delivers them to the publisher again.
    :ivar answered: REQUESTs answered from the retransmit buffer alone.
    :ivar routed: REQUESTs forwarded to clients, in whole or in part, with :attr:`forwards` FORWARDs in total.
    :ivar beyond: REQUESTs for numbers that were not assigned yet.
    :ivar fetched: messages of clients that were passed on to others which these cannot send to.
    :ivar multicast: messages sent to the multicast group, without repairs.
    :ivar repaired_for_all: messages sent to the group again, because several clients asked for them.
    :ivar gathered: messages not sent to a client that asked for them, because they were on their way to the group.
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
    fetched: int = 0
    multicast: int = 0
    repaired_for_all: int = 0
    gathered: int = 0


@dataclass(slots=True)
class ClientCounters:
    """Counters of a client since its start. Drops are counted by reason in ``drops``.

    :ivar opened: sealed payloads that were opened.
    :ivar skipped: numbers that backbones which took over from one another left unused.
    :ivar leader_changes: times that another backbone took over, or the same one again.
    """

    received: int = 0
    delivered: int = 0
    duplicates: int = 0
    repeats: int = 0
    opened: int = 0
    repaired: int = 0
    lost: int = 0
    skipped: int = 0
    leader_changes: int = 0
    requests: int = 0
    pushes: int = 0
    published: int = 0
    publish_failed: int = 0
    unkept: int = 0


class MessagesLost(NamedTuple):
    """Event: numbers ``first`` to ``last`` are lost. The client stopped requesting them."""

    first: int
    last: int


class NumbersGivenUp(NamedTuple):
    """Event: a relay has stopped requesting numbers ``first`` to ``last`` for itself. Its clients may still ask."""

    first: int
    last: int


class NumbersSkipped(NamedTuple):
    """Event: numbers ``first`` to ``last`` are not part of the stream. A backbone that took over left them unused."""

    first: int
    last: int


class TermStarted(NamedTuple):
    """Event: the messages from here on were numbered by the backbone that leads in ``term``.

    :ivar held_up_to: highest number of earlier terms that a client held; those up to ``first`` are not part of the
        stream.
    :ivar first: number of the message that starts the term, which is not delivered.
    """

    term: int
    held_up_to: int
    first: int


class MessagesPublished(NamedTuple):
    """Event: messages were published. Pairs of the ticket that ``publish`` returned and the sequence number."""

    messages: list[tuple[int, int]]


class MessagesExpired(NamedTuple):
    """Event: messages were not acknowledged in time."""

    tickets: list[int]


@dataclass(frozen=True, slots=True)
class PacketDropped:
    """Event: a packet was dropped. Further drops of this host and reason are only counted for 60 s."""

    reason: str
    peer: Address
    detail: str
