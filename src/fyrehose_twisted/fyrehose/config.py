"""Configuration of backbones and clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, MAX_SEQUENCE, Dialect
from fyrehose_twisted.process.secret import check_secret

DEFAULT_MEMORY_LIMIT = 64 * 2**20
"""Bytes of memory for messages that a client can repair others with."""

DEFAULT_BUFFER_BYTES = 32 * 2**20
"""Bytes of memory for messages that wait for missing ones."""


@dataclass(frozen=True, slots=True)
class WindowConfig:
    """Limits of the window, in messages, and of the timer, in seconds.

    The timer's lower limit is that of common TCPs rather than the whole second of RFC 6298: what is lost on
    the way back is repaired by a REQUEST long before.
    """

    initial: int = 64
    minimum: int = 16
    maximum: int = 8_192
    minimum_timeout: float = 0.2
    maximum_timeout: float = 4.0
    congested_loss: float = 0.125
    """Share of a round that may get lost before that counts as congestion; a radio link loses some at any rate."""


@dataclass(frozen=True, slots=True)
class OutboxConfig:
    """Limits of a publisher.

    :ivar raw: send payloads bare, without an envelope; then equal payloads acknowledge each other, and a
        message may be published more than once.
    :ivar queue_messages: messages that may wait, those under way included.
    :ivar queue_bytes: bytes that may wait.
    :ivar timeout: seconds after which a message that did not come back fails.
    """

    raw: bool = False
    queue_messages: int = 65_536
    queue_bytes: int = 64 * 2**20
    timeout: float = 30.0
    window: WindowConfig = field(default_factory=WindowConfig)


@dataclass(frozen=True, slots=True)
class RepairConfig:
    """How patient and how greedy repairs are.

    :ivar reorder_delay: seconds to wait for a late datagram before asking for it.
    :ivar first_retry: seconds until the second attempt; doubles with each, up to ``last_retry``.
    :ivar attempts: REQUESTs for a number before it is given up.
    :ivar rate: REQUESTs a second at most; half of what a backbone honours by default.
    :ivar in_flight: numbers asked for at once.
    """

    reorder_delay: float = 0.02
    first_retry: float = 0.1
    last_retry: float = 0.5
    attempts: int = 14
    rate: float = 2_000.0
    in_flight: int = 8_192


class AddressList:
    """A list of IPv4 networks in CIDR form."""

    def __init__(self, networks: Iterable[str | IPv4Network]) -> None:
        """:raises ConfigurationError: if one is not an IPv4 network."""
        self.networks = tuple(map(parse_network, networks))
        self.permits = lru_cache(maxsize=4096)(self._permits)

    def _permits(self, host: str) -> bool:
        """Say whether ``host``, in dotted form, is in one of the networks."""
        address = IPv4Address(host)
        return any(address in network for network in self.networks)

    def __repr__(self) -> str:
        return f"AddressList({', '.join(map(str, self.networks))})"


def parse_network(text: str | IPv4Network) -> IPv4Network:
    """Return the network that ``text`` names. :raises ConfigurationError: if it names none."""
    try:
        return IPv4Network(text)
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is not an IPv4 network such as 10.0.0.0/8 ({error})") from None


MAX_RETRANSMIT = 2**40
"""Bytes."""

MIN_KEEPALIVE_INTERVAL, MAX_KEEPALIVE_INTERVAL = 0.1, 0.9
"""Seconds. A client owes its backbone a KEEPALIVE at least every second (000, client rule 1), and timers are late."""


@dataclass(frozen=True, slots=True)
class BackboneConfig:
    """What a backbone is told.

    :ivar max_clients: clients served at once; one more gets no ACK.
    :ivar max_per_host: of those, how many may send from one host; by default a quarter of them, or 16 if that is more.
    :ivar allow: whom to serve at all; ``None`` for anyone.
    :ivar allow_push: whose PUSHes to number; ``None`` for anyone who is served.
    :ivar secret: shared secret for KEEPALIVE tokens; with one, only admitted clients may PUSH.
    :ivar trust_addresses: take ADDR at its word, for clients behind address translation.
    :ivar request_rate: REQUESTs a second honoured for each client.
    :ivar request_burst: REQUESTs at once.
    :ivar retransmit: bytes of memory for the latest messages, from which the backbone answers REQUESTs itself.
    :ivar min_rate: bytes a second that publishers are allowed in any case. Above that rate they are slowed down while a
        subscriber has yet to be repaired from the older half of that memory and no durable journal holds what it
        misses. ``None`` never to slow them down.
    """

    max_clients: int = 1_024
    max_per_host: int | None = None
    allow: AddressList | None = None
    allow_push: AddressList | None = None
    secret: bytes | None = field(default=None, repr=False)
    trust_addresses: bool = False
    request_rate: float = 4_000.0
    request_burst: float = 8_000.0
    retransmit: int = 32 * 2**20
    min_rate: float | None = 2**20

    def __post_init__(self) -> None:
        if self.max_clients < 1:
            raise ConfigurationError(f"a table of {self.max_clients} clients serves nobody; allow at least 1")
        if self.max_per_host is not None and self.max_per_host < 1:
            raise ConfigurationError(
                f"a limit of {self.max_per_host} clients of one host serves none; allow at least 1"
            )
        if not 0 <= self.retransmit <= MAX_RETRANSMIT:
            raise ConfigurationError(
                f"retransmit memory of {self.retransmit} bytes; it must lie in 0 to {MAX_RETRANSMIT}"
            )
        if self.min_rate is not None and self.min_rate <= 0:
            raise ConfigurationError(f"a minimum rate of {self.min_rate:g} bytes a second stops publishers for good")
        if self.secret is not None:
            check_secret(self.secret)

    @property
    def host_limit(self) -> int:
        """How many clients of one host are served at once."""
        return max(self.max_clients // 4, 16) if self.max_per_host is None else self.max_per_host


def check_exposure(interface: str, config: BackboneConfig) -> None:
    """Refuse to serve anybody who asks, except on loopback: packets can be forged to flood others.

    :raises ConfigurationError: if ``interface`` is not loopback and ``config`` does not say whom to serve.
    """
    if not IPv4Address(interface).is_loopback and config.secret is None and config.allow is None:
        raise ConfigurationError(
            f"--interface {interface} is not loopback, and packets can be forged to flood others."
            " Say whom to serve: --secret-file FILE, --allow CIDR, or --open for everybody"
        )


class Start(Enum):
    """Where a subscriber begins, if not at a number."""

    LIVE = "live"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What a client is told.

    :ivar start: the first message to hand over: the next one, the oldest that anyone holds, or a number.
    :ivar raw: hand over DATA as it is, repeats included; do not look for envelopes.
    :ivar subscribe: receive the stream. A client that does not can publish with CONFIRM, or just ask for ACKs.
    :ivar journal: keep messages and answer FORWARDs.
    :ivar history_bytes: memory for that.
    :ivar buffer_bytes: memory for messages that wait for others or for the application.
    :ivar keepalive_interval: seconds between KEEPALIVEs, 0.1 to 0.9: one a second is due, and timers are late.
    :ivar dialect: which document to speak; version 1 has no flags, so its clients always subscribe and journal.
    :ivar watch: be told all the time how far durable journals have synced.
    :ivar secret: shared secret of the backbone; needs ``address``.
    :ivar address: ADDR and PORT to give; by default "where this packet came from".
    :ivar outbox: for publishers.
    :ivar repair: patience and greed of repairs.
    """

    start: Start | int = Start.LIVE
    raw: bool = False
    subscribe: bool = True
    journal: bool = True
    history_bytes: int = DEFAULT_MEMORY_LIMIT
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    keepalive_interval: float = MAX_KEEPALIVE_INTERVAL
    dialect: Dialect = Dialect.V2
    watch: bool = False
    secret: bytes | None = field(default=None, repr=False)
    address: Address = ANY_ADDRESS
    outbox: OutboxConfig = field(default_factory=OutboxConfig)
    repair: RepairConfig = field(default_factory=RepairConfig)

    def __post_init__(self) -> None:
        if not MIN_KEEPALIVE_INTERVAL <= self.keepalive_interval <= MAX_KEEPALIVE_INTERVAL:
            raise ConfigurationError(
                f"keepalive interval of {self.keepalive_interval:g} s; it must lie in {MIN_KEEPALIVE_INTERVAL} to"
                f" {MAX_KEEPALIVE_INTERVAL} s, for a backbone is owed one every second"
            )
        if isinstance(self.start, int) and not 1 <= self.start <= MAX_SEQUENCE:
            raise ConfigurationError(f"start at number {self.start}; numbers go from 1 to {MAX_SEQUENCE}")
        if self.dialect is Dialect.V1 and (self.secret is not None or not (self.subscribe and self.journal)):
            raise ConfigurationError(
                "dialect v1 has no flags and no token: its clients subscribe, journal, have no secret"
            )
        if self.watch and self.dialect is Dialect.V1:
            raise ConfigurationError("dialect v1 cannot watch journals: it has no way to ask what they have; use v2")
        if self.secret is not None:
            check_secret(self.secret)
