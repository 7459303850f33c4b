"""The clients that a backbone serves: their admission, their expiry, and which of them get what."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import ClientTraffic, ServedClient
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Flags, Keepalive
from fyrehose_twisted.fyrehose.wire.token import token_is_valid

Key = TypeVar("Key")

MAX_EXPIRY_DELAY = 1.0
"""Seconds by which an expiry may be late before something else than load must be the reason."""

EXPIRY_GRACE = 2.0
"""Seconds that clients then have to be heard of: two keepalive intervals."""

MAX_PER_SOURCE = 16
"""Clients that one socket may keep alive."""

CLIENT_LIFETIME = 5.0
"""Seconds for which a KEEPALIVE keeps a client (000, backbone rule 2)."""


class _AddressGroup:
    """The addresses of those clients that did not set ``flag``."""

    def __init__(self, flag: Flags) -> None:
        self._flag = flag
        self._members: dict[Address, None] = {}
        self._cached_addresses: tuple[Address, ...] | None = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All of them; the same tuple until they change."""
        if self._cached_addresses is None:
            self._cached_addresses = tuple(self._members)
        return self._cached_addresses

    def update(self, address: Address, flags: int) -> None:
        """Add a client or take it out: cheap, for whoever is served may change flags as often as packets come."""
        if (address in self._members) != bool(flags & self._flag):
            return
        if flags & self._flag:
            del self._members[address]
        else:
            self._members[address] = None
        self._cached_addresses = None


class _ClientLists(NamedTuple):
    """Clients by what they do for others or want to know of them."""

    durable_journals: list[ServedClient]
    memory_journals: list[Address]
    joined_sequences: list[int]
    watchers: list[ServedClient]


class ClientTable:
    """A table of at most ``max_clients``, the one that expires first at the front.

    :ivar config: may be replaced at any time.
    :ivar departures: how many clients have left, or stopped to keep messages, so far.
    :ivar unlisted: of all addresses that publish without being clients.
    """

    def __init__(self, config: BackboneConfig) -> None:
        self._subscriber_group = _AddressGroup(Flags.NOSUBSCRIBE)
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
        """Addresses of those without NOSUBSCRIBE; the same tuple until they change."""
        return self._subscriber_group.addresses

    @property
    def durable_journals(self) -> Sequence[ServedClient]:
        """Those of the journals that are durable."""
        return self._client_lists.durable_journals

    @property
    def watchers(self) -> Sequence[ServedClient]:
        """Those that want to be told at once what becomes durable."""
        return self._client_lists.watchers

    @property
    def memory_journals(self) -> Sequence[Address]:
        """Addresses of the journals that are not durable, in the order of :attr:`joined_sequences`."""
        return self._client_lists.memory_journals

    @property
    def joined_sequences(self) -> Sequence[int]:
        """For each of :attr:`memory_journals`, the last number that had been given when it joined."""
        return self._client_lists.joined_sequences

    def has_journal_at(self, address: Address) -> bool:
        """Say whether there is a journal at ``address``."""
        client = self._clients.get(address)
        return client is not None and not client.flags & Flags.NOJOURNAL

    def get(self, address: Address) -> ServedClient | None:
        """Return the client at ``address``, if there is one."""
        return self._clients.get(address)

    def get_by_source(self, peer: Address) -> ServedClient | None:
        """Return the client whose latest KEEPALIVE came from ``peer``, if there is one."""
        address = self._sources.get(peer)
        return None if address is None else self._clients.get(address)

    def count_published(self, peer: Address, count: int, size: int) -> None:
        """Count messages of ``peer``, ``size`` bytes of DATA in all."""
        client = self.get_by_source(peer)
        traffic = self.unlisted if client is None else client.traffic
        traffic.published += count
        traffic.published_bytes += size

    def refusal_reason(self, keepalive: Keepalive, address: Address, peer: Address, now: float) -> str | None:
        """Return why a client at ``address`` whose KEEPALIVE came from ``peer`` is not served; ``None`` if it is."""
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
        if self._per_source[peer] >= MAX_PER_SOURCE or self._per_host[peer[0]] >= config.host_limit:
            return "host_full"
        if len(self._clients) >= config.max_clients:
            return "table_full"
        return None

    def renew(
        self, keepalive: Keepalive, address: Address, peer: Address, now: float, *, last: int = 0
    ) -> ServedClient | None:
        """Serve a client for the next 5 s; return it if it is new.

        :param last: the last number given so far.
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
            self._subscriber_group.update(address, keepalive.flags)
            self._cached_lists = None
            if not joined and keepalive.flags & Flags.NOJOURNAL:
                self.departures += 1
        client.source, client.flags, client.dialect = peer, keepalive.flags, keepalive.dialect
        client.token = keepalive.token
        client.heard_at, client.expires_at = now, now + CLIENT_LIFETIME
        self._clients.move_to_end(address)
        self._pending_changes[address] = client
        return client if joined else None

    def restore(self, known: Iterable[KnownClient], now: float) -> list[ServedClient]:
        """Serve clients of a backbone that was here before, as far as they are allowed; return them.

        There may be more of them than are admitted now. They have the usual 5 s to be heard of, or 2 s if the latest
        KEEPALIVE is older than that: a living client sends four a second by then.
        """
        known = sorted(known, key=lambda one: one.heard_at)
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
            self._subscriber_group.update(address, flags)
            restored.append(client)
        self._cached_lists = None
        return restored

    def take_changes(self) -> tuple[tuple[Address, KnownClient | None], ...]:
        """Return the clients heard of since the last call, and ``None`` for each that is gone."""
        if not self._pending_changes:
            return ()
        changed, self._pending_changes = self._pending_changes, {}
        return tuple((address, None if one is None else _to_known_client(one)) for address, one in changed.items())

    def expire(self, now: float) -> list[ServedClient]:
        """Remove and return those who have not been heard of for 5 s."""
        expired: list[ServedClient] = []
        first = self.next_expiry()
        if first is None or now < first <= now + CLIENT_LIFETIME:
            return expired
        if now > first + MAX_EXPIRY_DELAY:
            # Nobody looked when this was due: the process was stopped, or the clock set forward. The KEEPALIVEs of that
            # time may still wait to be read, and without their senders messages would be numbered for nobody.
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
            self._subscriber_group.update(client.address, Flags.NOSUBSCRIBE)
            self._cached_lists = None
            if not client.flags & Flags.NOJOURNAL:
                self.departures += 1
            self._pending_changes[client.address] = None
            expired.append(client)
        return expired

    def next_expiry(self) -> float | None:
        """Return when the next client expires unless it is heard of."""
        return next(iter(self._clients.values())).expires_at if self._clients else None

    def may_push(self, peer: Address) -> bool:
        """Say whether a PUSH from ``peer`` is accepted (000, backbone rule 5, as far as the operator lets it stand)."""
        config = self.config
        if config.secret is not None and peer not in self._sources:
            return False
        if config.allow is not None and not config.allow.permits(peer[0]):
            return False
        return config.allow_push is None or config.allow_push.permits(peer[0])

    def may_request(self, address: Address, peer: Address) -> bool:
        """Say whether a packet from ``peer`` may speak for the client at ``address``."""
        client = self._clients.get(address)
        # What a client admitted by its token may do, others on its host may not.
        compared = 1 if self.config.secret is None else 2
        return client is not None and client.source[:compared] == peer[:compared]

    def subscribes(self, address: Address) -> bool:
        """Say whether there is a subscriber at ``address``."""
        client = self._clients.get(address)
        return client is not None and not client.flags & Flags.NOSUBSCRIBE

    def __iter__(self) -> Iterator[ServedClient]:
        return iter(self._clients.values())

    def __len__(self) -> int:
        return len(self._clients)

    def _add_source(self, source: Address, address: Address) -> None:
        self._sources[source] = address
        self._per_source[source] += 1
        self._per_host[source[0]] += 1

    def _remove_source(self, client: ServedClient) -> None:
        source = client.source
        if self._sources.get(source) == client.address:
            del self._sources[source]
        _decrement(self._per_source, source)
        _decrement(self._per_host, source[0])

    def _clock_set_back(self, now: float) -> None:
        # Or the client at the front, alive until the old time comes again, keeps the others from expiring.
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
            )
        return self._cached_lists


def _decrement(counter: Counter[Key], key: Key) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _to_known_client(client: ServedClient) -> KnownClient:
    return KnownClient(
        client.address, client.source, client.flags, client.dialect, client.joined_sequence, client.heard_at
    )
