"""UDP sessions: a demultiplexer that receives valid, modified and arbitrary datagrams."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from fuzz.choices import Choices, piece
from fyrehose_twisted.hydra.transports.udp.datagrams import MAX_DATAGRAM, SessionKeys, sign, verify
from fyrehose_twisted.hydra.transports.udp.demux import SessionDemux

HERE, THERE, ELSEWHERE = ("192.0.2.1", 6174), ("192.0.2.2", 6174), ("198.51.100.9", 9)
SECRET = b"a secret of more than 16 bytes"
KEEP, CHANGE, STRANGE, WRITE, WAIT = range(5)
"""Steps: deliver a valid or modified datagram, deliver an arbitrary one, write at both ends, or advance the clock."""


def seeds() -> Iterable[bytes]:
    """Return step sequences for two demultiplexers."""
    calm = bytes((KEEP,)) * 8 + bytes((WRITE, 9, KEEP, KEEP, KEEP, WAIT, 20)) * 6
    for setup in range(4):
        yield bytes((setup,)) + calm
        yield bytes((setup,)) + calm + bytes((CHANGE, 0, 1, 7, KEEP, CHANGE, 3, 9, 1)) * 4
        yield bytes((setup,)) + b"".join(bytes((STRANGE,)) + piece(bytes((kind,)) * 41) for kind in range(11))


def one(data: bytes) -> None:
    """Run the steps on a dialling and an accepting demultiplexer that share a faulty network."""
    choices = Choices(data)
    setup = choices.number()
    rng, now = Random(1), 1_000.0
    secret = SECRET if setup & 1 else None
    stations = {
        address: SessionDemux(secret, max_ping=10.0, accepted=2, per_source=2, token=rng.randbytes)
        for address in (HERE, THERE)
    }
    stations[THERE].accepting = True
    session = stations[HERE].dial(THERE, now)
    network: list[tuple[bytes, tuple[str, int], tuple[str, int]]] = []
    steps = 0
    while choices and steps < 400:
        steps += 1
        step = choices.number() % 5
        if step == WRITE:
            size = choices.number()
            for station in stations.values():
                for written in list(station.sessions.values()):
                    written.write(bytes(size), now)
                    station.schedule(written)
        elif step == WAIT:
            now += choices.number() / 16
        elif step == STRANGE:
            body = choices.piece()
            target = HERE if setup & 2 else THERE
            stations[target].receive(sign(body, SessionKeys(secret).shared_key) if setup & 4 else body, ELSEWHERE, now)
        elif network:
            datagram, source, target = network.pop(0)
            if step == CHANGE:
                changed = bytearray(datagram)
                changed[choices.number(2) % len(changed)] ^= choices.number()
                datagram = bytes(changed)[: choices.number() or None]
            if datagram:
                stations[target].receive(datagram, source, now)
        for address, station in stations.items():
            station.tick(now)
            replies, turns = station.drain()
            for reply, to in replies:
                network += [(reply, address, to)] if to in stations else []
            for turn in turns:
                network += [(sent, address, turn.session.address) for sent in turn.output.datagrams]
            assert len(station.sessions) <= 3
        network = [entry for entry in network if entry[2] in stations][:200]
        assert all(len(datagram) <= MAX_DATAGRAM for datagram, _, _ in network)
    keys = SessionKeys(secret)
    assert verify(sign(data, keys.shared_key), keys.shared_key) == data
    assert session.close_reason is None or session not in stations[HERE].sessions.values()
