"""Configuration of backbones and clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, MAX_SEQUENCE, Dialect
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.process.secret import check_secret

DEFAULT_MEMORY_LIMIT = 64 * 2**20
"""Bytes of memory for messages from which a client answers repair requests."""

DEFAULT_BUFFER_BYTES = 32 * 2**20
"""Bytes of memory for the reorder buffer."""


@dataclass(frozen=True, slots=True)
class WindowConfig:
    """Limits of a publisher's congestion window, in messages, and of its retransmission timer, in seconds.

    The lower limit of the timer is that of common TCP implementations, not the 1 s of RFC 6298. A message that is lost
    on its way back is repaired by a REQUEST long before 1 s has passed.
    """

    initial: int = 64
    minimum: int = 16
    maximum: int = 8_192
    minimum_timeout: float = 0.2
    marked_timeout: float = 0.05
    """The lower limit if the backbone recognises retransmissions, so that one too many does no harm."""
    maximum_timeout: float = 4.0
    congested_loss: float = 0.125
    """Share of a round that may be lost before it counts as congestion. Radio links always lose some datagrams."""


@dataclass(frozen=True, slots=True)
class OutboxConfig:
    """Limits of a publisher's send queue.

    :ivar raw: send payloads without an envelope. Equal payloads then acknowledge each other, and a message may be
        published more than once.
    :ivar queue_messages: maximum number of queued messages, including those in flight.
    :ivar queue_bytes: maximum size of the queue in bytes.
    :ivar timeout: seconds after which an unacknowledged message fails.
    """

    raw: bool = False
    queue_messages: int = 65_536
    queue_bytes: int = 64 * 2**20
    timeout: float = 30.0
    window: WindowConfig = field(default_factory=WindowConfig)


@dataclass(frozen=True, slots=True)
class RepairConfig:
    """Timing and limits of repair requests.

    :ivar reorder_delay: seconds to wait for a late datagram before requesting it.
    :ivar first_retry: seconds until the second attempt; doubled after each attempt, up to ``last_retry``.
    :ivar attempts: REQUESTs for a number before it is reported as lost.
    :ivar rate: maximum REQUESTs per second; half of what a backbone accepts by default. A busy stream allows more: one
        for every 16 messages that the backbone sends.
    :ivar in_flight: maximum count of numbers requested at once.
    """

    reorder_delay: float = 0.02
    first_retry: float = 0.1
    last_retry: float = 0.5
    attempts: int = 14
    rate: float = 2_000.0
    in_flight: int = 8_192


Network = IPv4Network | IPv6Network


class AddressList:
    """Allow list of IPv4 and IPv6 networks in CIDR form."""

    def __init__(self, networks: Iterable[str | Network]) -> None:
        """:raises ConfigurationError: if an entry is not a network."""
        self.networks = tuple(map(parse_network, networks))
        self.permits = lru_cache(maxsize=4096)(self._permits)

    def _permits(self, host: str) -> bool:
        """Return whether the IP address ``host`` is in one of the networks."""
        address = ip_address(host.partition("%")[0])
        return any(address in network for network in self.networks)

    def __repr__(self) -> str:
        return f"AddressList({', '.join(map(str, self.networks))})"


def parse_network(text: str | Network) -> Network:
    """Parse a network. :raises ConfigurationError: if ``text`` is not one."""
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is not a network such as 10.0.0.0/8 or fd00::/8 ({error})") from None


MAX_RETRANSMIT = 2**40
"""Upper limit of the retransmit buffer in bytes."""

MIN_KEEPALIVE_INTERVAL, MAX_KEEPALIVE_INTERVAL = 0.1, 0.9
"""Limits of the KEEPALIVE interval in seconds. A KEEPALIVE is due every second (000, client rule 1), and timers may
fire late."""


@dataclass(frozen=True, slots=True)
class BackboneConfig:
    """Limits and access control of a backbone.

    :ivar max_clients: maximum number of clients. The backbone sends no ACK to further clients.
    :ivar max_per_host: maximum number of clients on one host, or in one IPv6 /64; by default a quarter of
        ``max_clients``, at least 16.
    :ivar allow: networks whose clients are served; ``None`` for all.
    :ivar allow_push: networks whose PUSHes are numbered; ``None`` for all clients that are served.
    :ivar secret: shared secret for KEEPALIVE tokens. With a secret, only admitted clients may PUSH.
    :ivar trust_addresses: accept any ADDR, for clients behind address translation.
    :ivar request_rate: accepted REQUESTs per second and client.
    :ivar request_burst: REQUESTs accepted at once from one client.
    :ivar retransmit: size in bytes of the retransmit buffer, from which the backbone answers REQUESTs itself.
    :ivar min_rate: bytes per second that publishers may always send. Above this rate, they are slowed down while a
        subscriber waits for repairs from the older half of the retransmit buffer that no durable journal holds.
        ``None`` turns this backpressure off.
    :ivar multicast: multicast group to which messages are sent once for all clients that hear it; ``None`` for none.
    :ivar stream: URI of the stream. MACs of another stream with the same secret are wrong.
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
    multicast: Address | None = None
    stream: str = ""

    def __post_init__(self) -> None:
        if self.multicast is not None:
            check_group(self.multicast)
        if self.max_clients < 1:
            raise ConfigurationError(f"maximum number of clients is {self.max_clients}; allow at least 1")
        if self.max_per_host is not None and self.max_per_host < 1:
            raise ConfigurationError(f"maximum number of clients on one host is {self.max_per_host}; allow at least 1")
        if not 0 <= self.retransmit <= MAX_RETRANSMIT:
            raise ConfigurationError(
                f"retransmit buffer of {self.retransmit} bytes; choose 0 to {MAX_RETRANSMIT} bytes"
            )
        if self.min_rate is not None and self.min_rate <= 0:
            raise ConfigurationError(
                f"minimum rate of {self.min_rate:g} bytes per second would stop all publishers;"
                " choose a positive rate, or None for no backpressure"
            )
        if self.secret is not None:
            check_secret(self.secret)

    @property
    def host_limit(self) -> int:
        """Maximum number of clients on one host."""
        return max(self.max_clients // 4, 16) if self.max_per_host is None else self.max_per_host


def check_group(group: Address) -> None:
    """Check that packets can name ``group``, and that no protocol of routers uses it.

    :raises ConfigurationError: if not.
    """
    host, port = group
    try:
        address = IPv4Address(host)
    except ValueError:
        address = None
    if address is None or not address.is_multicast or address in _ROUTERS or not 0 < port <= 65_535:
        raise ConfigurationError(
            f"{format_address(group)} is not an IPv4 multicast group and a port; choose one of your site, such as"
            " 239.1.1.1:2324 (224.0.0.0/24 belongs to routers)"
        )


_ROUTERS = IPv4Network("224.0.0.0/24")


def check_exposure(interface: str, config: BackboneConfig) -> None:
    """Require a secret or an allow list on interfaces other than loopback.

    Without either, forged packets could make the backbone flood other hosts.

    :raises ConfigurationError: if ``interface`` is not loopback and ``config`` has neither.
    """
    if not ip_address(interface.partition("%")[0]).is_loopback and config.secret is None and config.allow is None:
        raise ConfigurationError(
            f"--interface {interface} is not loopback, and forged packets could be used to flood other hosts;"
            " pass --secret-file FILE, --allow CIDR, or --open to serve all clients"
        )


class Start(Enum):
    """Start position of a subscriber, other than a number."""

    LIVE = "live"
    OLDEST = "oldest"


class MacPolicy(Enum):
    """Use of MACs by a client with a secret."""

    OFF = "off"
    OFFER = "offer"
    """Accept DELIVERs without a MAC from a backbone that answers as if it had none."""
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Settings of a client.

    :ivar start: first message to deliver: the next one, the oldest that any client holds, or a number.
    :ivar raw: deliver DATA unchanged, including repeats, without parsing envelopes.
    :ivar subscribe: receive the stream. Clients that do not subscribe can publish with CONFIRM, or only send
        KEEPALIVEs.
    :ivar journal: store messages and answer FORWARDs.
    :ivar history_bytes: bytes of memory for stored messages.
    :ivar buffer_bytes: bytes of memory for messages that wait for a repair or for the application.
    :ivar keepalive_interval: seconds between KEEPALIVEs, 0.1 to 0.9. One is due each second, and timers may fire late.
    :ivar dialect: protocol version. Version 1 has no flags, so its clients always subscribe and journal.
    :ivar watch: receive the progress of durable journals continuously.
    :ivar secret: shared secret of the backbone; requires ``address``.
    :ivar mac: use of MACs, which require the secret. ``REQUIRE`` without a secret is an error.
    :ivar address: ADDR and PORT to announce; by default the source address of the packet.
    :ivar ip_versions: IP versions of the hosts that this client can send repairs to, such as ``(4, 6)``. By default
        the backbone is told of none, and assumes the IP version by which it knows the client.
    :ivar multicast: listen to the multicast group of the backbone, if it has one.
    :ivar outbox: limits of the send queue of a publisher.
    :ivar repair: timing and limits of repair requests.
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
    mac: MacPolicy = MacPolicy.OFFER
    address: Address = ANY_ADDRESS
    ip_versions: tuple[int, ...] = ()
    multicast: bool = False
    outbox: OutboxConfig = field(default_factory=OutboxConfig)
    repair: RepairConfig = field(default_factory=RepairConfig)

    def __post_init__(self) -> None:
        if not MIN_KEEPALIVE_INTERVAL <= self.keepalive_interval <= MAX_KEEPALIVE_INTERVAL:
            raise ConfigurationError(
                f"keepalive interval of {self.keepalive_interval:g} s; choose {MIN_KEEPALIVE_INTERVAL} to"
                f" {MAX_KEEPALIVE_INTERVAL} s: a KEEPALIVE is due every second"
            )
        if isinstance(self.start, int) and not 1 <= self.start <= MAX_SEQUENCE:
            raise ConfigurationError(f"start at number {self.start}; numbers go from 1 to {MAX_SEQUENCE}")
        if self.dialect is Dialect.V1 and (self.secret is not None or not (self.subscribe and self.journal)):
            raise ConfigurationError(
                "dialect v1 has no flags and no token, so its clients subscribe, journal and have no secret; use v2"
            )
        if self.mac is MacPolicy.REQUIRE and self.secret is None:
            raise ConfigurationError("MACs are made with the shared secret; --require-mac requires --secret-file FILE")
        if self.watch and self.dialect is Dialect.V1:
            raise ConfigurationError("dialect v1 cannot watch journals; use v2")
        if self.multicast and (self.dialect is Dialect.V1 or not self.subscribe):
            raise ConfigurationError("only subscribers with dialect v2 can listen to a multicast group")
        if self.secret is not None:
            check_secret(self.secret)

    @property
    def wants_macs(self) -> bool:
        """Whether the client asks for MACs."""
        return self.secret is not None and self.mac is not MacPolicy.OFF
