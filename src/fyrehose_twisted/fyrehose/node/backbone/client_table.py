"""Client table of the backbone: admission, expiry and selection of clients."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import ClientTraffic, ServedClient
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient
from fyrehose_twisted.fyrehose.node.mac.offering import MacOffer
from fyrehose_twisted.fyrehose.node.multicast.audience import Audience
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Flags, Keepalive
from fyrehose_twisted.fyrehose.wire.token import token_is_valid
from fyrehose_twisted.host_addresses import host_version, is_loopback, source_network

Key = TypeVar("Key")

MAX_EXPIRY_DELAY = 1.0
"""Seconds by which an expiry may be late under load. A longer delay means that the process or the clock jumped."""

EXPIRY_GRACE = 2.0
"""Seconds that clients have to send a KEEPALIVE after such a jump: two keepalive intervals."""

MAX_PER_SOURCE = 16
"""Maximum number of clients with KEEPALIVEs from one source address."""

CLIENT_LIFETIME = 5.0
"""Seconds after a KEEPALIVE at which a client expires (000, backbone rule 2)."""


class _AddressGroup:
    """Addresses of the clients without ``flag``."""

    def __init__(self, flag: Flags) -> None:
        self._flag = flag
        self._members: dict[Address, None] = {}
        self._cached_addresses: tuple[Address, ...] | None = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses in the group; the same tuple object until the group changes."""
        if self._cached_addresses is None:
            self._cached_addresses = tuple(self._members)
        return self._cached_addresses

    def update(self, address: Address, flags: int) -> None:
        """Add or remove a client. This is cheap, because clients may change their flags with every packet."""
        if (address in self._members) != bool(flags & self._flag):
            return
        if flags & self._flag:
            del self._members[address]
        else:
            self._members[address] = None
        self._cached_addresses = None

    def move_to_end(self, address: Address) -> None:
        """Make a client of the group the last one."""
        if address in self._members:
            del self._members[address]
            self._members[address] = None
            self._cached_addresses = None


# As numbers, because operators of IntFlag are slow.
_IPV4, _IPV6 = int(Flags.IPV4), int(Flags.IPV6)
_REACH = _IPV4 | _IPV6
_NOSUBSCRIBE, _MULTICAST, _MAC = int(Flags.NOSUBSCRIBE), int(Flags.MULTICAST), int(Flags.MAC)
_REPAIRS = _REACH | _MAC


def can_be_asked(address: Address, flags: int) -> bool:
    """Return whether the client at ``address`` understands a FORWARD for a host that it can send to.

    A client of the documents understands no FORWARD with an IPv6 address, and one that is known by its IPv6 address may
    not be able to send to an IPv4 address.
    """
    return ":" not in address[0] or bool(flags & _REACH)


class Destination(NamedTuple):
    """What matters of the address of a requester.

    :ivar is_loopback: whether only clients on the host of the backbone can send to it, and it can send to no others.
    :ivar wants_macs: whether it accepts repairs only from clients that can make MACs.
    """

    version: int
    is_loopback: bool
    wants_macs: bool = False


def can_repair(client: ServedClient, destination: Destination | None) -> bool:
    """Return whether a FORWARD makes a client send repairs to a requester.

    :param destination: ``None`` for a requester whose address no packet carries.
    """
    host = client.address[0]
    if destination is None or destination.is_loopback != is_loopback(host):
        return False
    if destination.wants_macs and not client.flags & _MAC:
        return False
    if destination.version == 4:
        return ":" not in host or bool(client.flags & _IPV4)
    return bool(client.flags & _IPV6)


def can_be_fetched(client: ServedClient, destination: Destination | None) -> bool:
    """Return whether the backbone can ask a client for messages that it passes on to a requester.

    What a client has sent without a MAC must not get one of the backbone.
    """
    is_trusted = destination is None or not destination.wants_macs or bool(client.flags & _MAC)
    return is_trusted and can_be_asked(client.address, client.flags)


class Repairers(NamedTuple):
    """Clients that store messages.

    :ivar joined_sequences: last number assigned before each of ``memory`` joined, ascending.
    """

    durable: list[ServedClient]
    memory: list[Address]
    joined_sequences: list[int]


class _ClientLists(NamedTuple):
    """Clients by role."""

    durable_journals: list[ServedClient]
    memory_journals: list[Address]
    joined_sequences: list[int]
    watchers: list[ServedClient]
    repairers: dict[Destination | None, tuple[Repairers, Repairers]]
    """Clients that can send repairs to a destination, and those that can only send to the backbone."""


class ClientTable:
    """Table of at most ``max_clients`` clients, in order of expiry.

    :ivar config: limits and access control; may be replaced at any time.
    :ivar departures: total number of clients that left or stopped to store messages.
    :ivar unlisted: traffic of all addresses that publish without being clients.
    :ivar audience: clients that listen to the multicast group.
    :ivar macs: MACs for the clients that want them.
    """

    def __init__(self, config: BackboneConfig) -> None:
        self._subscriber_group = _AddressGroup(Flags.NOSUBSCRIBE)
        self.audience = Audience(config.multicast)
        self.macs = MacOffer(config)
        self._subscriber_group_with_macs = _AddressGroup(Flags.NOSUBSCRIBE)
        self.config = config
        self.departures = 0
        self.unlisted = ClientTraffic()
        self._clients: OrderedDict[Address, ServedClient] = OrderedDict()
        self._sources: dict[Address, Address] = {}
        self._per_host: Counter[str] = Counter()
        self._per_source: Counter[Address] = Counter()
        self._cached_lists: _ClientLists | None = None
        self._pending_changes: dict[Address, ServedClient | None] = {}

    @property
    def subscribers(self) -> tuple[Address, ...]:
        """Where to send messages without MACs: the addresses of clients without NOSUBSCRIBE, where those that hear the
        multicast group are replaced by it; the same tuple object until they change."""
        addresses = self._subscriber_group.addresses
        return addresses if self.macs.is_open else self.audience.destinations(addresses)

    @property
    def subscribers_with_macs(self) -> tuple[Address, ...]:
        """Where to send messages with MACs, as :attr:`subscribers`."""
        addresses = self._subscriber_group_with_macs.addresses
        return self.audience.destinations(addresses) if self.macs.is_open else addresses

    @property
    def subscriber_count(self) -> int:
        """Number of clients without NOSUBSCRIBE."""
        own = len(self._subscriber_group.addresses) + len(self._subscriber_group_with_macs.addresses)
        return own + self.audience.listeners

    def gets_macs(self, address: Address) -> bool:
        """Return whether DELIVERs to ``address``, or to the source of a client's KEEPALIVEs, have MACs."""
        if not self.macs.is_open:
            return False
        client = self._clients.get(address) or self.get_by_source(address)
        return address == self.audience.group if client is None else bool(client.flags & _MAC)

    def _update_groups(self, address: Address, flags: int) -> None:
        """Deliver to a client according to its FLAGS."""
        with_macs = self.macs.is_taken(flags)
        if self.macs.is_open and not with_macs:
            # The group gets MACs, which this client would take for garbage.
            flags &= ~_MULTICAST
        flags = self.audience.update(address, flags)
        self._subscriber_group.update(address, flags | _NOSUBSCRIBE if with_macs else flags)
        self._subscriber_group_with_macs.update(address, flags if with_macs else flags | _NOSUBSCRIBE)

    @property
    def durable_journals(self) -> Sequence[ServedClient]:
        """Clients that are durable journals."""
        return self._client_lists.durable_journals

    @property
    def watchers(self) -> Sequence[ServedClient]:
        """Clients that watch the progress of durable journals."""
        return self._client_lists.watchers

    @property
    def memory_journals(self) -> Sequence[Address]:
        """Addresses of clients that store messages in memory, in the order of :attr:`joined_sequences`."""
        return self._client_lists.memory_journals

    @property
    def joined_sequences(self) -> Sequence[int]:
        """Last number assigned before each of :attr:`memory_journals` joined."""
        return self._client_lists.joined_sequences

    def has_journal_at(self, address: Address) -> bool:
        """Return whether the client at ``address`` stores messages, and can be asked for them."""
        client = self._clients.get(address)
        return client is not None and not client.flags & Flags.NOJOURNAL and can_be_asked(address, client.flags)

    def repairers(self, requester: Address) -> tuple[Repairers, Repairers]:
        """Return the clients that can send repairs to ``requester``, and those that can only send to the backbone."""
        lists, destination = self._client_lists, self._destination_of(requester)
        found = lists.repairers.get(destination)
        if found is None:
            found = lists.repairers[destination] = self._split_repairers(lists, destination)
        return found

    def repairs_directly(self, address: Address, requester: Address) -> bool:
        """Return whether the client at ``address`` can send repairs to ``requester``."""
        client = self._clients.get(address)
        return client is not None and can_repair(client, self._destination_of(requester))

    def get(self, address: Address) -> ServedClient | None:
        """Return the client at ``address``, or ``None``."""
        return self._clients.get(address)

    def get_by_source(self, peer: Address) -> ServedClient | None:
        """Return the client whose latest KEEPALIVE came from ``peer``, or ``None``."""
        address = self._sources.get(peer)
        return None if address is None else self._clients.get(address)

    def count_published(self, peer: Address, count: int, size: int) -> None:
        """Count published messages of ``peer`` with ``size`` bytes of DATA in total."""
        client = self.get_by_source(peer)
        traffic = self.unlisted if client is None else client.traffic
        if client is not None and not traffic.published:
            # A publisher knows its own messages. Those who wait for them come first.
            self._subscriber_group.move_to_end(client.address)
            self._subscriber_group_with_macs.move_to_end(client.address)
        traffic.published += count
        traffic.published_bytes += size

    def refusal_reason(self, keepalive: Keepalive, address: Address, peer: Address, now: float) -> str | None:
        """Return the reason to refuse a KEEPALIVE from ``peer`` for ``address``; ``None`` to admit the client."""
        config = self.config
        if config.allow is not None and not config.allow.permits(peer[0]):
            return "not_allowed"
        if not config.trust_addresses and address[0] != peer[0]:
            return "foreign_address"
        if config.secret is not None:
            explicit = keepalive.address[0] != ANY_ADDRESS[0] and keepalive.address[1] != 0
            if not explicit or not (config.trust_addresses or keepalive.address == peer):
                return "foreign_address"
            if not token_is_valid(config.secret, keepalive, now):
                return "token"
        if address in self._clients:
            return None
        if self._per_source[peer] >= MAX_PER_SOURCE or self._per_host[source_network(peer[0])] >= config.host_limit:
            return "host_full"
        if len(self._clients) >= config.max_clients:
            return "table_full"
        return None

    def renew(
        self, keepalive: Keepalive, address: Address, peer: Address, now: float, *, last: int = 0
    ) -> ServedClient | None:
        """Serve a client for the next 5 s. Return it if it is new, else ``None``.

        :param last: last assigned number.
        """
        client = self._clients.get(address)
        joined = client is None
        if client is None:
            client = self._clients[address] = ServedClient(
                address, peer, keepalive.flags, keepalive.dialect, now, joined_sequence=last, connected_since=now
            )
        else:
            self._remove_source(client)
        self._add_source(peer, address)
        if joined or client.flags != keepalive.flags:
            self._update_groups(address, keepalive.flags)
            self._cached_lists = None
            if not joined and (keepalive.flags & Flags.NOJOURNAL or (keepalive.flags ^ client.flags) & _REPAIRS):
                self.departures += 1
        client.source, client.flags, client.dialect = peer, keepalive.flags, keepalive.dialect
        client.token = keepalive.token
        client.heard_at, client.expires_at = now, now + CLIENT_LIFETIME
        self._clients.move_to_end(address)
        self._pending_changes[address] = client
        return client if joined else None

    def restore(self, known: Iterable[KnownClient], now: float) -> list[ServedClient]:
        """Restore the clients of the previous backbone process that are still allowed, and return them.

        Their number may exceed the current limit. They expire after the usual 5 s, or after 2 s if the latest KEEPALIVE
        is older than 5 s: without ACKs, a live client sends four KEEPALIVEs per second.
        """
        known = sorted(known, key=lambda client: client.heard_at)
        outage = now - known[-1].heard_at if known else 0.0
        expires_at = now + (CLIENT_LIFETIME if outage <= CLIENT_LIFETIME else EXPIRY_GRACE)
        restored, allow = list[ServedClient](), self.config.allow
        for address, source, flags, dialect, joined, heard_at in known:
            if allow is not None and not allow.permits(source[0]):
                self._pending_changes[address] = None
                continue
            client = ServedClient(
                address,
                source,
                flags,
                dialect,
                expires_at,
                joined_sequence=joined,
                heard_at=heard_at,
                connected_since=now,
            )
            self._clients[address] = client
            self._add_source(source, address)
            self._update_groups(address, flags)
            restored.append(client)
        self._cached_lists = None
        return restored

    def take_changes(self) -> tuple[tuple[Address, KnownClient | None], ...]:
        """Return the clients changed since the last call, with ``None`` for each that expired."""
        if not self._pending_changes:
            return ()
        changed, self._pending_changes = self._pending_changes, {}
        return tuple(
            (address, None if client is None else _to_known_client(client)) for address, client in changed.items()
        )

    def expire(self, now: float) -> list[ServedClient]:
        """Remove and return the clients that sent no KEEPALIVE for 5 s."""
        expired: list[ServedClient] = []
        first = self.next_expiry()
        if first is None or now < first <= now + CLIENT_LIFETIME:
            return expired
        if now > first + MAX_EXPIRY_DELAY:
            # The process was stopped or the clock set forward. KEEPALIVEs of that time may still be in the receive
            # buffer, and if all clients expired, messages would be numbered without subscribers.
            for client in self._clients.values():
                client.expires_at += now - first + EXPIRY_GRACE
        while self._clients:
            client = next(iter(self._clients.values()))
            if client.expires_at > now + CLIENT_LIFETIME:
                self._clock_set_back(now)
            if client.expires_at > now:
                break
            del self._clients[client.address]
            self._remove_source(client)
            self._update_groups(client.address, _NOSUBSCRIBE)
            self._cached_lists = None
            if not client.flags & Flags.NOJOURNAL:
                self.departures += 1
            self._pending_changes[client.address] = None
            expired.append(client)
        return expired

    def next_expiry(self) -> float | None:
        """Return the time at which the next client expires, ``None`` if there are no clients."""
        return next(iter(self._clients.values())).expires_at if self._clients else None

    def may_push(self, peer: Address) -> bool:
        """Return whether PUSHes from ``peer`` are accepted (000, backbone rule 5, restricted by the configuration)."""
        config = self.config
        if config.secret is not None and peer not in self._sources:
            return False
        if config.allow is not None and not config.allow.permits(peer[0]):
            return False
        return config.allow_push is None or config.allow_push.permits(peer[0])

    def may_request(self, address: Address, peer: Address) -> bool:
        """Return whether ``peer`` may send requests for the client at ``address``."""
        client = self._clients.get(address)
        # With a secret, other sockets of the same host have no access to the client.
        compared = 1 if self.config.secret is None else 2
        return client is not None and client.source[:compared] == peer[:compared]

    def subscribes(self, address: Address) -> bool:
        """Return whether the client at ``address`` subscribes."""
        client = self._clients.get(address)
        return client is not None and not client.flags & Flags.NOSUBSCRIBE

    def __iter__(self) -> Iterator[ServedClient]:
        return iter(self._clients.values())

    def __len__(self) -> int:
        return len(self._clients)

    def _add_source(self, source: Address, address: Address) -> None:
        self._sources[source] = address
        self._per_source[source] += 1
        self._per_host[source_network(source[0])] += 1

    def _remove_source(self, client: ServedClient) -> None:
        source = client.source
        if self._sources.get(source) == client.address:
            del self._sources[source]
        _decrement(self._per_source, source)
        _decrement(self._per_host, source_network(source[0]))

    def _clock_set_back(self, now: float) -> None:
        # Otherwise the first client, which expires at the time before the change, would block the expiry of the others.
        for client in self._clients.values():
            client.expires_at = min(client.expires_at, now + CLIENT_LIFETIME)

    @property
    def _client_lists(self) -> _ClientLists:
        if self._cached_lists is None:
            journals = [client for client in self._clients.values() if not client.flags & Flags.NOJOURNAL]
            journals.sort(key=lambda client: (client.joined_sequence, client.address))
            others = [client for client in journals if not client.flags & Flags.DURABLE]
            self._cached_lists = _ClientLists(
                [client for client in journals if client.flags & Flags.DURABLE],
                [client.address for client in others],
                [client.joined_sequence for client in others],
                [client for client in self._clients.values() if client.flags & Flags.WATCHES],
                {},
            )
        return self._cached_lists

    def _destination_of(self, requester: Address) -> Destination | None:
        """Return what matters of an address, ``None`` if no packet can carry it."""
        host = requester[0]
        if ":" in host and not can_be_packed(requester):
            return None
        return Destination(host_version(host), is_loopback(host), self.gets_macs(requester))

    def _split_repairers(self, lists: _ClientLists, destination: Destination | None) -> tuple[Repairers, Repairers]:
        direct, indirect = Repairers([], [], []), Repairers([], [], [])
        for client in lists.durable_journals:
            if can_repair(client, destination):
                direct.durable.append(client)
            elif can_be_fetched(client, destination):
                indirect.durable.append(client)
        for address, joined in zip(lists.memory_journals, lists.joined_sequences, strict=True):
            client = self._clients[address]
            if can_repair(client, destination):
                chosen = direct
            elif can_be_fetched(client, destination):
                chosen = indirect
            else:
                continue
            chosen.memory.append(address)
            chosen.joined_sequences.append(joined)
        return direct, indirect


def _decrement(counter: Counter[Key], key: Key) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _to_known_client(client: ServedClient) -> KnownClient:
    return KnownClient(
        client.address, client.source, client.flags, client.dialect, client.joined_sequence, client.heard_at
    )
