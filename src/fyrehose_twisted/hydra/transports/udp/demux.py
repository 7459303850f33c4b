"""Demultiplexer of the UDP sessions of one socket, without I/O, with admission of new sessions.

Replies to addresses without a session keep no state and are limited in number, as source addresses may be spoofed.
"""

from __future__ import annotations

import os
from collections import Counter
from hashlib import blake2b
from heapq import heappop, heappush
from hmac import compare_digest
from itertools import count
from typing import NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.host_addresses import source_network
from fyrehose_twisted.hydra.transports.udp.datagrams import (
    ABORT,
    ACCEPT,
    COOKIE,
    DATA,
    FIN,
    HEADER,
    ID_SIZE,
    INIT,
    INIT_SIZE,
    OPEN,
    OPEN_BODY,
    REFUSE,
    RESET,
    RandomBytes,
    SessionKeys,
    sign,
    verify,
)
from fyrehose_twisted.hydra.transports.udp.session import CloseReason, SessionOutput, UdpSession

COOKIE_AGE = 30.0
"""Shortest validity of a cookie in seconds; the longest is twice that."""
MAX_RESETS_PER_SECOND = 100
"""Largest number of RESETs per second for unknown sessions."""


class SessionUpdate(NamedTuple):
    """Output of one session, see :class:`SessionOutput`."""

    session: UdpSession
    output: SessionOutput


class SessionDemux:
    """Sessions of one UDP socket.

    :param accepted: largest number of accepted sessions.
    :param per_source: largest number of accepted sessions per host.
    :ivar accepting: whether peers may dial.
    :ivar sessions: open sessions by the local id.
    :ivar counters: counters since the start.
    """

    def __init__(
        self,
        secret: bytes | None = None,
        *,
        max_ping: float = 10.0,
        accepted: int = 256,
        per_source: int = 64,
        token: RandomBytes = os.urandom,
    ) -> None:
        self.keys = SessionKeys(secret)
        self._other_keys: tuple[SessionKeys, ...] = ()
        self.accepting = False
        self.sessions: dict[bytes, UdpSession] = {}
        self.counters: Counter[str] = Counter()
        self._max_ping = max_ping
        self._limits = accepted, per_source
        self._token = token
        self._instance = token(ID_SIZE)
        self._cookie_key = token(32)
        self._by_address: dict[Address, list[UdpSession]] = {}
        self._accepted: dict[tuple[Address, bytes], UdpSession] = {}
        """Accepted sessions by address and id of the peer."""
        self._sources: Counter[str] = Counter()
        self.scheduled: dict[UdpSession, None] = {}
        """Sessions to be drained by :meth:`drain`."""
        self._replies: list[tuple[bytes, Address]] = []
        self._resets_sent = (0.0, 0)
        self._heap: list[tuple[float, int, UdpSession]] = []
        self._numbers = count()

    def set_secrets(self, secret: bytes, *others: bytes) -> None:
        """Replace the secrets for later sessions; see :meth:`~fyrehose_twisted.net.auth.Authenticator.set_secrets`."""
        self.keys = SessionKeys(secret)
        self._other_keys = tuple(map(SessionKeys, others))

    def dial(self, address: Address, now: float) -> UdpSession:
        """Return a new session to an address."""
        session = self._make(address, now, None, self.keys)
        self.schedule(session)
        return session

    def schedule(self, session: UdpSession) -> None:
        """Schedule a session for :meth:`drain`."""
        self.scheduled[session] = None

    def receive(self, datagram: bytes, address: Address, now: float) -> None:
        """Handle a received datagram."""
        kind = datagram[0] if len(datagram) > ID_SIZE else 0
        if kind in (DATA, FIN, ABORT, COOKIE, ACCEPT, REFUSE):
            session = self.sessions.get(datagram[1 : 1 + ID_SIZE])
            if session is None:
                self.counters["unknown"] += 1
                if kind in (DATA, FIN, ABORT) and len(datagram) >= HEADER.size:
                    self._reply_reset(datagram[1 : 1 + ID_SIZE], address, now)
            elif session.address != address:
                self.counters["strayed"] += 1
            else:
                opened = session.opened
                session.receive(datagram, now)
                self.schedule(session)
                if session.opened and not opened:
                    self._session_opened(session, now)
        elif kind in (INIT, OPEN, RESET):
            self._receive_signed(kind, datagram, address, now)
        else:
            self.counters["malformed"] += 1

    def _receive_signed(self, kind: int, datagram: bytes, address: Address, now: float) -> None:
        """Handle a datagram outside of sessions, which proves knowledge of the shared key."""
        for keys in (self.keys, *self._other_keys):
            body = verify(datagram, keys.shared_key)
            if body is not None:
                break
        else:
            self.counters["unproved"] += 1
            return
        if kind == RESET and len(body) == 1 + ID_SIZE:
            self._reset_received(body[1:], address, now)
        elif kind == INIT and len(body) == INIT_SIZE:
            if self.accepting:
                name = body[1 : 1 + ID_SIZE]
                cookie = self._cookie(name, address, int(now // COOKIE_AGE))
                self._replies.append((sign(bytes((COOKIE,)) + name + cookie, keys.shared_key), address))
        elif kind == OPEN and len(body) == OPEN_BODY.size:
            if self.accepting:
                self._accept(body, address, now, keys)
        else:
            self.counters["malformed"] += 1

    def tick(self, now: float) -> None:
        """Handle timeouts of sessions that are due."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            when, _, session = heappop(heap)
            if session.timer_at == when:
                session.timer_at = None
                session.tick(now)
                self.schedule(session)

    def next_deadline(self) -> float | None:
        """Return the time of the next :meth:`tick`."""
        return self._heap[0][0] if self._heap else None

    def drain(self) -> tuple[list[tuple[bytes, Address]], list[SessionUpdate]]:
        """Return replies outside of sessions, and the outputs of scheduled sessions."""
        replies, self._replies = self._replies, []
        touched, self.scheduled = self.scheduled, {}
        turns = []
        for session in touched:
            turns.append(SessionUpdate(session, session.drain()))
            if session.close_reason is not None:
                self._forget(session)
                continue
            deadline = session.next_deadline()
            if deadline is not None and (session.timer_at is None or deadline < session.timer_at):
                session.timer_at = deadline
                heappush(self._heap, (deadline, next(self._numbers), session))
        if len(self._heap) > 64 + 4 * len(self.sessions):
            self._heap = sorted(entry for entry in self._heap if entry[2].timer_at == entry[0])
        return replies, turns

    # Helpers

    def _make(self, address: Address, now: float, opening: tuple[bytes, bytes] | None, keys: SessionKeys) -> UdpSession:
        session = UdpSession(
            address,
            now,
            keys=keys,
            max_ping=self._max_ping,
            instance=self._instance,
            opening=opening,
            token=self._token,
            counters=self.counters,
        )
        self.sessions[session.local] = session
        self._by_address.setdefault(address, []).append(session)
        return session

    def _forget(self, session: UdpSession) -> None:
        if self.sessions.pop(session.local, None) is None:
            return
        session.timer_at = None
        there = self._by_address[session.address]
        there.remove(session)
        if not there:
            del self._by_address[session.address]
        if not session.dialled:
            del self._accepted[session.address, session.remote]
            self._sources[source_network(session.address[0])] -= 1
            self._sources += Counter()  # Remove zero counts.

    def _cookie(self, name: bytes, address: Address, period: int) -> bytes:
        text = b"%d %d %s " % (period, address[1], address[0].encode())
        return blake2b(text + name, key=self._cookie_key, digest_size=16).digest()

    def _accept(self, body: bytes, address: Address, now: float, keys: SessionKeys) -> None:
        _, name, cookie, instance = OPEN_BODY.unpack(body)
        period = int(now // COOKIE_AGE)
        if not any(compare_digest(cookie, self._cookie(name, address, period - age)) for age in (0, 1)):
            self.counters["unproved_address"] += 1
            return
        session = self._accepted.get((address, name))
        if session is not None:
            session.accept_again()
            self.schedule(session)
            return
        most, per_source = self._limits
        if len(self._accepted) >= most or self._sources[source_network(address[0])] >= per_source:
            self.counters["refused"] += 1
            self._replies.append((sign(bytes((REFUSE,)) + name, keys.shared_key), address))
            return
        session = self._accepted[address, name] = self._make(address, now, (name, instance), keys)
        self._sources[source_network(address[0])] += 1
        self.schedule(session)

    def _session_opened(self, session: UdpSession, now: float) -> None:
        """End earlier sessions with the address of a new one if the peer's instance has changed."""
        for other in self._by_address[session.address]:
            if other.opened and other.instance != session.instance:
                other.end(CloseReason.RESTARTED, now)
                self.schedule(other)

    def _reset_received(self, name: bytes, address: Address, now: float) -> None:
        for session in self._by_address.get(address, ()):
            if name == session.remote:
                session.probe(now)
                self.schedule(session)

    def _reply_reset(self, name: bytes, address: Address, now: float) -> None:
        second, answered = self._resets_sent
        if now >= second + 1 or now < second:
            second, answered = now, 0
        if answered < MAX_RESETS_PER_SECOND:
            self._resets_sent = second, answered + 1
            self._replies.append((sign(bytes((RESET,)) + name, self.keys.shared_key), address))
