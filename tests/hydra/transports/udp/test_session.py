"""Streams over UDP on a simulated network that loses, repeats and reorders, in virtual time."""

from __future__ import annotations

import heapq
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address
from fyrehose_twisted.hydra.transports.udp.datagrams import (
    DATA,
    HEADER,
    INIT,
    MAX_DATAGRAM,
    OPEN,
    PAYLOAD,
    RESET,
    WINDOW,
    SessionKeys,
)
from fyrehose_twisted.hydra.transports.udp.demux import MAX_RESETS_PER_SECOND, SessionDemux
from fyrehose_twisted.hydra.transports.udp.send_buffer import _INITIAL_WINDOW, _MIN_WINDOW, ACK_DELAY
from fyrehose_twisted.hydra.transports.udp.session import (
    LINGER,
    MAX_QUEUED,
    OPEN_TIMEOUT,
    PROBE_TIMEOUT,
    CloseReason,
    UdpSession,
)

MAX_PING = 10.0
HERE, THERE, ELSEWHERE = ("192.0.2.1", 6174), ("192.0.2.2", 6174), ("198.51.100.9", 9)
SECRET = b"a secret of more than 16 bytes"


class Host:
    """A host and the state of its sessions."""

    def __init__(self, address: Address, station: SessionDemux) -> None:
        self.address = address
        self.station = station
        self.got: dict[UdpSession, bytes] = {}
        self.ended: dict[UdpSession, CloseReason] = {}

    @property
    def opened(self) -> list[UdpSession]:
        """Return open sessions that were dialled by other hosts."""
        return [session for session in self.station.sessions.values() if session.opened and not session.dialled]


class Channel:
    """A network of hosts in virtual time."""

    def __init__(self, seed: int = 1, *, loss: float = 0.0, repeats: float = 0.0, delays: Any = (0.01, 0.01)) -> None:
        self.rng = Random(seed)
        self.loss, self.repeats, self.delays = loss, repeats, delays
        self.now = 1_000.0
        self.hosts: dict[Address, Host] = {}
        self.sent: list[tuple[float, Address, Address, bytes]] = []
        self._heap: list[tuple[float, int, Address, Address, bytes]] = []
        self._numbers = count()

    def host(self, address: Address, *, accepting: bool = True, **more: Any) -> Host:
        station = SessionDemux(max_ping=MAX_PING, token=self.rng.randbytes, **more)
        station.accepting = accepting
        self.hosts[address] = Host(address, station)
        return self.hosts[address]

    def send(self, datagram: bytes, source: Address, target: Address) -> None:
        self.sent.append((self.now, source, target, datagram))
        assert len(datagram) <= MAX_DATAGRAM
        for _ in range(1 + (self.rng.random() < self.repeats)):
            if self.rng.random() >= self.loss:
                when = self.now + self.rng.uniform(*self.delays)
                heapq.heappush(self._heap, (when, next(self._numbers), source, target, datagram))

    def drain(self, host: Host) -> None:
        while host.station.scheduled or host.station._replies:
            replies, turns = host.station.drain()
            for datagram, target in replies:
                self.send(datagram, host.address, target)
            for session, drained in turns:
                for datagram in drained.datagrams:
                    self.send(datagram, host.address, session.address)
                host.got[session] = host.got.get(session, b"") + drained.data
                if drained.close_reason is not None:
                    host.ended[session] = drained.close_reason
            for session in host.station.sessions.values():
                assert len(session._send_buffer._outstanding) <= WINDOW
                assert len(session._receive_buffer._reorder_buffer) < WINDOW
                assert len(session._send_buffer._in_flight) + len(session._send_buffer._lost) == len(
                    session._send_buffer._outstanding
                )

    def run(self, seconds: float) -> None:
        """Advance the clock."""
        end = self.now + seconds
        for host in self.hosts.values():
            self.drain(host)
        while True:
            deadlines = [host.station.next_deadline() for host in self.hosts.values()]
            when = min([deadline for deadline in deadlines if deadline is not None] + [end])
            if self._heap and self._heap[0][0] <= min(when, end):
                self.now, _, source, target, datagram = heapq.heappop(self._heap)
                if (host := self.hosts.get(target)) is not None:
                    host.station.receive(datagram, source, self.now)
                    self.drain(host)
                continue
            if when >= end:
                self.now = end
                return
            self.now = max(self.now, when)
            for host in self.hosts.values():
                host.station.tick(self.now)
                self.drain(host)

    def write(self, host: Host, session: UdpSession, data: bytes) -> None:
        session.write(data, self.now)
        host.station.schedule(session)
        self.drain(host)

    def close(self, host: Host, session: UdpSession) -> None:
        session.close(self.now)
        host.station.schedule(session)
        self.drain(host)

    def end(self, host: Host, session: UdpSession, reason: CloseReason) -> None:
        session.end(reason, self.now)
        host.station.schedule(session)
        self.drain(host)


def pair(channel: Channel, **more: Any) -> tuple[Host, UdpSession, Host, UdpSession]:
    """Return two hosts and both ends of a session between them."""
    here, there = channel.host(HERE, **more), channel.host(THERE, **more)
    session = here.station.dial(THERE, channel.now)
    channel.run(0.5 if not channel.loss else 9.0)
    assert session.opened
    return here, session, there, there.opened[-1]


def lines(count: int, start: int = 0) -> bytes:
    return b"".join(b"SEND 7 PRIVMSG #channel :line %d\r\n" % number for number in range(start, start + count))


@given(
    st.integers(0, 2**32),
    st.floats(0, 0.35),
    st.floats(0, 0.3),
    st.sampled_from([(0.001, 0.002), (0.001, 0.1), (0.02, 0.4)]),
    st.sampled_from([None, SECRET]),
)
def test_data_arrives_once_and_in_order_or_the_session_ends(
    seed: int, loss: float, repeats: float, delays: Any, secret: bytes | None
) -> None:
    channel = Channel(seed, loss=loss, repeats=repeats, delays=delays)
    here, there = channel.host(HERE, secret=secret), channel.host(THERE, secret=secret)
    session = here.station.dial(THERE, channel.now)
    written: dict[UdpSession, bytes] = {}
    for number in range(30):
        for host in (here, there):
            for one in tuple(host.station.sessions.values()):
                if one.opened and channel.rng.random() < 0.7:
                    data = lines(channel.rng.choice((1, 3, 40, 800)), 1_000 * number)
                    written[one] = written.get(one, b"") + data
                    channel.write(host, one, data)
        channel.run(channel.rng.choice((0.0, 0.001, 0.1, 1.0)))
    channel.run(400)
    if session in here.ended:  # All datagrams were lost for 10 s, or one segment for 30 s.
        assert here.ended[session] in (CloseReason.SILENT, CloseReason.RESET)
        assert loss > 0.15
    accepted = [one for one in there.got if one.remote == session.local and one.opened]
    assert len(accepted) <= 1
    ends = [(here, session, there, one) for one in accepted]
    ends += [(there, one, here, session) for one in accepted]
    for source, sender, target, receiver in ends:
        expected = written.get(sender, b"")
        assert expected.startswith(target.got.get(receiver, b""))
        if sender not in source.ended and receiver not in target.ended:
            assert target.got[receiver] == expected
            assert sender.waiting == 0
    if accepted and session not in here.ended:
        channel.close(here, session)
        channel.run(20)
        assert here.ended[session] is CloseReason.CLOSED
        assert here.station.sessions == {}
    channel.run(3 * MAX_PING)
    assert not here.station.sessions
    assert not there.station.sessions


@given(st.integers(0, 2**32))
def test_close_delivers_all_written_data(seed: int) -> None:
    channel = Channel(seed, loss=0.1, delays=(0.01, 0.05))
    here, session, there, other = pair(channel)
    channel.write(here, session, lines(5_000))
    channel.close(here, session)
    channel.write(here, session, b"this comes too late\r\n")
    channel.run(100)
    if there.ended[other] is CloseReason.CLOSED:
        assert there.got[other] == lines(5_000)
    else:  # The other end gave up and reported it.
        assert lines(5_000).startswith(there.got[other])
    assert not here.station.sessions
    assert not there.station.sessions


def test_stream_of_lines_takes_few_datagrams_and_half_as_many_acknowledgements() -> None:
    channel = Channel()
    here, session, there, other = pair(channel)
    channel.sent.clear()
    channel.write(here, session, lines(20_000))
    channel.run(2)
    assert there.got[other] == lines(20_000)
    there_to_here = [datagram for _, source, _, datagram in channel.sent if source == THERE]
    parts = [datagram for _, source, _, datagram in channel.sent if source == HERE]
    assert len(parts) <= len(lines(20_000)) / 1_250
    assert len(there_to_here) <= len(parts) / 2 + 2
    assert here.station.counters["sent_again"] == 0


def test_single_segment_is_acknowledged_within_20_ms_or_by_return_data() -> None:
    channel = Channel()
    here, session, there, other = pair(channel)
    channel.sent.clear()
    channel.write(here, session, b"one\r\n")
    channel.run(1)
    (sent, *_), (answered, *_) = channel.sent
    assert answered - sent == pytest.approx(0.01 + ACK_DELAY)
    assert session.waiting == 0
    channel.sent.clear()
    channel.write(here, session, b"two\r\n")
    channel.run(0.015)
    channel.write(there, other, b"back\r\n")
    channel.run(0.011)
    assert session.waiting == 0
    assert [source for _, source, _, _ in channel.sent] == [HERE, THERE]
    channel.run(1)
    channel.write(here, session, bytes(2 * PAYLOAD))
    channel.run(0.021)
    assert session.waiting == 0


def test_lost_segment_is_retransmitted_with_backoff() -> None:
    channel = Channel()
    here, session, _, _ = pair(channel)
    channel.loss = 1.0
    channel.sent.clear()
    begun = channel.now
    channel.write(here, session, b"one\r\n")
    channel.run(7.5)
    assert [round(when - begun, 3) for when, _, _, datagram in channel.sent if datagram.endswith(b"one\r\n")] == [
        0.0,
        0.2,
        0.6,
        1.4,
        3.0,
        5.0,
        7.0,
    ]
    channel.loss = 0.0
    channel.run(3)
    assert session.waiting == 0


def test_dial_is_repeated_and_times_out_after_max_ping() -> None:
    channel = Channel()
    here = channel.host(HERE)
    begun = channel.now
    session = here.station.dial(THERE, begun)
    channel.run(MAX_PING + 1)
    times = [round(when - begun, 3) for when, _, _, datagram in channel.sent if datagram[0] == INIT]
    assert times == [0.0, 0.2, 0.6, 1.4, 3.0, 5.0, 7.0, 9.0]
    assert here.ended == {session: CloseReason.SILENT}
    assert here.station.sessions == {}


def test_silence_ends_a_session_and_keepalives_keep_it() -> None:
    channel = Channel()
    here, session, there, other = pair(channel)
    channel.sent.clear()
    channel.run(100)
    assert (session.close_reason, other.close_reason) == (None, None)
    assert 60 <= len(channel.sent) <= 130
    channel.loss = 1.0
    begun = channel.now
    while not here.ended:
        channel.run(0.1)
        assert channel.now - begun <= MAX_PING + 0.1
    assert channel.now - begun >= MAX_PING - MAX_PING / 4 - 0.1
    channel.run(MAX_PING)
    assert (here.ended[session], there.ended[other]) == (CloseReason.SILENT, CloseReason.SILENT)


def test_unacknowledged_fin_is_given_up_after_a_second() -> None:
    channel = Channel()
    here, session, there, other = pair(channel)
    channel.loss = 1.0
    channel.close(here, session)
    channel.run(LINGER - 0.01)
    assert not here.ended
    channel.run(0.02)
    assert here.ended == {session: CloseReason.CLOSED}
    channel.loss = 0.0
    channel.run(MAX_PING + 1)
    assert there.ended == {other: CloseReason.RESET}


def test_aborted_session_ends_at_the_peer_at_once() -> None:
    channel = Channel()
    here, session, there, other = pair(channel)
    channel.end(here, session, CloseReason.ABORTED)
    channel.run(0.02)
    assert there.ended == {other: CloseReason.RESET}


def test_restarted_peer_resets_the_session() -> None:
    channel = Channel()
    here, session, _, _ = pair(channel, secret=SECRET)
    channel.host(THERE, secret=SECRET)
    channel.write(here, session, b"anybody there?\r\n")
    channel.run(PROBE_TIMEOUT + 0.05)
    assert here.ended == {session: CloseReason.RESET}


@pytest.mark.parametrize("dials", ["it", "the other"])
def test_new_session_with_a_restarted_peer_ends_the_old_one(dials: str) -> None:
    channel = Channel()
    here, session, _, _ = pair(channel)
    there = channel.host(THERE)
    if dials == "it":
        there.station.dial(HERE, channel.now)
    else:
        here.station.dial(THERE, channel.now)
    channel.run(0.1)
    assert here.ended == {session: CloseReason.RESTARTED}
    assert len(here.station.sessions) == 1
    assert len(there.station.sessions) == 1


@pytest.mark.parametrize("secret", [None, SECRET])
def test_provoked_reset_ends_no_live_session(secret: bytes | None) -> None:
    channel = Channel()
    here, session, there, other = pair(channel, secret=secret)
    stranger = channel.host(ELSEWHERE, secret=secret)
    for name, target, source in ((session.local, there, HERE), (other.local, here, THERE)):
        stranger.station.receive(bytes((DATA,)) + name + bytes(60), source, channel.now)
        (((reset, _),), _) = stranger.station.drain()
        assert reset[0] == RESET
        for _ in range(20):
            target.station.receive(reset, source, channel.now)
            channel.run(0.3)
    channel.run(1)
    assert (session.close_reason, other.close_reason) == (None, None)


def test_mutual_dials_open_two_sessions() -> None:
    channel = Channel()
    here, _, there, _ = pair(channel)
    there.station.dial(HERE, channel.now)
    channel.run(60)
    assert (len(here.station.sessions), len(there.station.sessions)) == (2, 2)
    assert not here.ended
    assert not there.ended


@given(st.integers(0, 2**32), st.sampled_from([None, SECRET]))
def test_spoofed_datagrams_cause_no_amplification_and_no_state(seed: int, secret: bytes | None) -> None:
    channel = Channel(seed)
    here, session, there, other = pair(channel, secret=secret)
    real = [datagram for _, _, _, datagram in channel.sent]
    rng, station = channel.rng, there.station
    before = dict(station.sessions)
    for number in range(400):
        datagram = bytearray(rng.choice(real) if rng.random() < 0.7 else rng.randbytes(rng.randrange(80)))
        if datagram and rng.random() < 0.5:
            datagram[rng.randrange(len(datagram))] ^= 1 << rng.randrange(8)
        source = (f"203.0.113.{rng.randrange(4)}", rng.randrange(1, 4))
        station.receive(bytes(datagram), source, channel.now + number / 1_000)
        replies, turns = station.drain()
        assert sum(len(reply) for reply, _ in replies) <= len(datagram)
        assert all(target == source for _, target in replies)
        assert not turns
    assert station.sessions == before
    assert len(station._heap) <= 64 + 4 * len(before)
    channel.write(here, session, b"still there\r\n")
    channel.run(0.1)
    assert there.got[other] == b"still there\r\n"


@given(st.integers(0, 2**32))
def test_modified_datagrams_are_dropped_and_counted(seed: int) -> None:
    channel = Channel(seed)
    here, there = channel.host(HERE, secret=SECRET), channel.host(THERE, secret=SECRET)
    changed = 0
    carry = channel.send

    def change(datagram: bytes, source: Address, target: Address) -> None:
        nonlocal changed
        if channel.rng.random() < 0.5:
            changed += 1
            forged = bytearray(datagram)
            forged[channel.rng.randrange(len(forged))] ^= 1 << channel.rng.randrange(8)
            carry(bytes(forged), source, target)
        carry(datagram, source, target)

    channel.send = change  # type: ignore[method-assign]
    session = here.station.dial(THERE, channel.now)
    channel.run(2)
    (other,) = there.opened
    for number in range(20):
        channel.write(here, session, lines(50, 50 * number))
        channel.write(there, other, lines(50, 50 * number))
        channel.run(0.5)
    assert there.got[other] == here.got[session] == lines(1_000)
    # A changed kind or id may make a datagram one of an unknown session, or foreign.
    counted = here.station.counters + there.station.counters
    found = counted["unproved"] + counted["malformed"] + counted["unknown"] + counted["late"]
    assert found >= changed
    assert counted["unproved"] > found / 2


def test_no_session_opens_without_the_secret() -> None:
    for ours, theirs in ((SECRET, b"another secret of that length"), (None, SECRET), (SECRET, None)):
        channel = Channel()
        here, there = channel.host(HERE, secret=ours), channel.host(THERE, secret=theirs)
        session = here.station.dial(THERE, channel.now)
        channel.run(MAX_PING + 1)
        assert here.ended == {session: CloseReason.SILENT}
        assert not there.got
        assert there.station.counters["unproved"] + there.station.counters["malformed"] > 5


def test_macs_depend_on_the_direction_and_the_session() -> None:
    channel = Channel()
    here, session, there, other = pair(channel, secret=SECRET)
    channel.write(here, session, b"one\r\n")
    channel.run(1)
    (datagram,) = [sent for _, _, _, sent in channel.sent if b"one" in sent]
    second = here.station.dial(THERE, channel.now)
    channel.run(1)
    (newer,) = [one for one in there.opened if one is not other]
    for target, local, source in (
        (there, newer.local, HERE),
        (here, session.local, THERE),
        (here, second.local, THERE),
    ):
        before = target.station.counters["unproved"]
        target.station.receive(datagram[:1] + local + datagram[9:], source, channel.now)
        assert target.station.counters["unproved"] == before + 1


@pytest.mark.parametrize("secret", [None, SECRET])
def test_replayed_datagrams_have_no_effect(secret: bytes | None) -> None:
    channel = Channel()
    here, session, there, other = pair(channel, secret=secret)
    channel.write(here, session, lines(500))
    channel.write(there, other, lines(500))
    channel.run(1)
    old = [entry for entry in channel.sent if entry[1] in (HERE, THERE)]
    here.got[session] = there.got[other] = b""

    def replay() -> None:
        for _, source, target, datagram in old:
            channel.hosts[target].station.receive(datagram, source, channel.now)
            channel.drain(channel.hosts[target])

    replay()
    channel.run(OPEN_TIMEOUT + 1)  # A session of a replayed dial is not opened, and is forgotten.
    assert here.got[session] == there.got[other] == b""
    assert (session.close_reason, other.close_reason) == (None, None)
    assert list(here.station.sessions.values()) == [session]
    assert list(there.station.sessions.values()) == [other]
    # Replays do not count as keepalives either.
    channel.loss = 1.0
    for _ in range(round(MAX_PING) + 1):
        replay()
        channel.run(1)
    assert (here.ended[session], there.ended[other]) == (CloseReason.SILENT, CloseReason.SILENT)
    # A replay does not reopen a closed session.
    replay()
    assert not here.opened
    assert not there.opened
    assert here.got[session] == there.got[other] == b""


def test_cookie_is_valid_for_one_address_and_a_limited_time() -> None:
    channel = Channel()
    pair(channel)
    there = channel.hosts[THERE]
    (opening,) = [datagram for _, _, _, datagram in channel.sent if datagram[0] == OPEN]
    for source, later in ((ELSEWHERE, 0.0), (("192.0.2.1", 6175), 0.0), (HERE, 100.0)):
        before = there.station.counters["unproved_address"]
        there.station.receive(opening, source, channel.now + later)
        assert there.station.counters["unproved_address"] == before + 1
    assert len(there.station.sessions) == 1


def test_accepted_sessions_are_limited_and_unopened_ones_expire() -> None:
    channel = Channel()
    here, there = channel.host(HERE), channel.host(THERE, accepted=3, per_source=2)
    elsewhere = channel.host(ELSEWHERE)
    dials = []
    for host in (here, here, here, elsewhere, elsewhere):
        dials.append((host, host.station.dial(THERE, channel.now)))
        channel.run(0.1)
    assert [session.opened for _, session in dials] == [True, True, False, True, False]
    assert here.ended[dials[2][1]] is elsewhere.ended[dials[4][1]] is CloseReason.REFUSED
    assert there.station.counters["refused"] == 2
    channel.close(*dials[0])
    channel.run(0.1)
    last = elsewhere.station.dial(THERE, channel.now)
    channel.run(0.1)
    assert last.opened

    half = Channel()
    here, there = half.host(HERE), half.host(THERE)
    here.station.dial(THERE, half.now)
    half.run(0.035)  # INIT, COOKIE and OPEN have arrived.
    del half.hosts[HERE]
    assert len(there.station.sessions) == 1
    assert not there.opened
    half.run(OPEN_TIMEOUT)
    assert not there.station.sessions
    assert not there.station._sources


def test_sessions_accepted_from_an_ipv6_64_count_as_those_of_one_host() -> None:
    channel = Channel()
    there = channel.host(("2001:db8:0:9::1", 6_174), accepted=9, per_source=2)
    opened = []
    for host in ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"):
        here = channel.host((host, 6_174))
        opened.append(here.station.dial(("2001:db8:0:9::1", 6_174), channel.now))
        channel.run(0.1)
    assert [session.opened for session in opened] == [True, True, False, True]
    assert there.station.counters["refused"] == 1


def test_dial_is_refused_without_a_listener() -> None:
    channel = Channel()
    here = channel.host(HERE)
    channel.host(THERE, accepting=False)
    here.station.dial(THERE, channel.now)
    channel.run(MAX_PING + 1)
    assert all(source == HERE for _, source, _, _ in channel.sent)


def test_segments_beyond_the_window_are_not_buffered() -> None:
    channel = Channel()
    _, _, there, other = pair(channel)
    for sequence in range(0, 100 * WINDOW, 7):
        head = HEADER.pack(DATA, other.local, 1_000 + sequence, sequence, 0, 0)
        there.station.receive(head + bytes(1_000), HERE, channel.now)
        assert len(other._receive_buffer._reorder_buffer) < WINDOW
    assert 10 < len(other._receive_buffer._reorder_buffer) < 40
    assert other.close_reason is None


def test_keys_differ_by_direction_and_by_session() -> None:
    ids = [bytes((number,)) * 8 for number in range(3)]
    keys = SessionKeys(SECRET)
    found = [key for one in ids for other in ids if one != other for key in keys.session_keys(one, other)]
    assert len(set(found)) == len(found) == 12
    assert SessionKeys(SECRET + b"!").session_keys(*ids[:2]) != keys.session_keys(*ids[:2])


def test_idle_session_survives_a_few_losses() -> None:
    channel = Channel(5, loss=0.15)
    here, session, there, other = pair(channel)
    channel.run(3_600)
    assert (session.close_reason, other.close_reason) == (None, None)
    channel.run(3_600)
    assert not here.ended
    assert not there.ended


def test_unsent_data_is_limited() -> None:
    channel = Channel()
    here, session, there, other = pair(channel)
    channel.loss = 1.0
    while session.close_reason is None:
        channel.write(here, session, bytes(2**20))
        assert session.waiting <= MAX_QUEUED
    assert session.close_reason is CloseReason.QUEUE_FULL
    assert session.waiting == 0
    channel.loss = 0.0
    channel.run(MAX_PING + 1)
    assert there.ended[other] in (CloseReason.RESET, CloseReason.SILENT)


def test_resets_for_unknown_sessions_are_rate_limited() -> None:
    channel = Channel()
    station = channel.host(HERE).station
    for number in range(3 * MAX_RESETS_PER_SECOND):
        station.receive(bytes((DATA,)) + number.to_bytes(8, "big") + bytes(60), ELSEWHERE, channel.now)
    assert len(station.drain()[0]) == MAX_RESETS_PER_SECOND
    station.receive(bytes((DATA,)) + bytes(60), ELSEWHERE, channel.now + 1)
    assert len(station.drain()[0]) == 1


def test_large_datagrams_that_never_arrive_end_the_session() -> None:
    channel = Channel()
    here, session, there, other = pair(channel)
    carry = channel.send
    channel.send = (  # type: ignore[method-assign]
        lambda datagram, source, target: carry(datagram, source, target) if len(datagram) < 500 else None
    )
    channel.write(here, session, lines(1_000))
    begun = channel.now
    while session.close_reason is None and channel.now < begun + 5 * MAX_PING:
        channel.write(there, other, b"all is well\r\n")
        channel.run(1)
    assert here.ended[session] is CloseReason.SILENT
    assert channel.now - begun == pytest.approx(3 * MAX_PING, abs=MAX_PING / 4 + 1)


def test_congestion_window_shrinks_on_loss_and_grows_again() -> None:
    channel = Channel()
    here, session, there, other = pair(channel)
    channel.write(here, session, lines(10_000))
    channel.run(1)
    wide = session._send_buffer.window.size
    assert wide > _INITIAL_WINDOW
    channel.loss = 0.05
    channel.write(here, session, lines(10_000))
    channel.run(3)
    assert session._send_buffer.window.size < wide / 2
    channel.loss = 0.0
    channel.write(here, session, lines(40_000))
    channel.run(20)
    assert session._send_buffer.window.size > 3 * _MIN_WINDOW
    assert there.got[other] == lines(10_000) * 2 + lines(40_000)


OLD, NEW = b"the secret so far, long enough", b"its successor, as long at least"
STEPS = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]


@pytest.mark.parametrize("dialler", range(4))
@pytest.mark.parametrize("acceptor", range(4))
def test_sessions_open_between_nodes_one_step_apart_in_a_change_of_the_secret(dialler: int, acceptor: int) -> None:
    channel = Channel()
    here, there = channel.host(HERE, secret=OLD), channel.host(THERE, secret=OLD)
    for host, step in ((here, dialler), (there, acceptor)):
        host.station.set_secrets(*STEPS[step])
    session = here.station.dial(THERE, channel.now)
    channel.run(0.5)
    if abs(dialler - acceptor) <= 1:
        assert session.opened
        channel.write(here, session, b"PING\r\n")
        channel.run(0.5)
        assert there.got[there.opened[0]] == b"PING\r\n"
    elif abs(dialler - acceptor) == 3:
        assert not session.opened
        assert there.station.counters["unproved"] > 0


def test_open_session_outlives_a_change_of_the_secret() -> None:
    channel = Channel()
    here, session, there, other = pair(channel, secret=OLD)
    for step in STEPS[1:]:
        for host in (here, there):
            host.station.set_secrets(*step)
            channel.write(here, session, b"x")
            channel.run(1.0)
    assert there.got[other] == b"x" * 6
    assert (here.ended, there.ended) == ({}, {})
