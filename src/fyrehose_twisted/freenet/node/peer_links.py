"""Links, and who is at their other ends (document 003: boot ids; the rest is ours).

Both ends of a link say who they are, and prove that they know the secret, if there is one. Two nodes keep one link: if
each dials the other, that of the lower id stays.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import cbor2

from fyrehose_twisted.effects import Address, Dial, HangUp, Peer, Write
from fyrehose_twisted.freenet.events import Complaint, NeighbourDown, NeighbourUp
from fyrehose_twisted.freenet.node.context import Core
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.wire.messages import NONCE_SIZE, Hello, Located, Message, Ping, Pong, Prove

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds until somebody who did not answer is dialled again."""
SILENCES = 3
"""After so many times the silence that a neighbour is asked for, it is gone."""
_LABEL = b"fyrehose freenet link\0"


class _Greeting:
    """A link whose other end is not known yet."""

    __slots__ = ("hello", "ours", "since")

    def __init__(self, ours: Hello, now: float) -> None:
        self.ours = ours
        self.since = now
        self.hello: Hello | None = None


class _Target:
    """Somebody to keep a link to."""

    __slots__ = ("dialling", "due", "link", "node", "pause")

    def __init__(self, now: float) -> None:
        self.due = now
        self.pause = FIRST_PAUSE
        self.dialling = False
        self.link: Any | None = None
        self.node: Any | None = None


class Meeting:
    """Gets to know neighbours, and notices that they are gone.

    :ivar arrived: called with a neighbour that is new, or back.
    :ivar rebooted: called with a neighbour that is back and has forgotten everything.
    :ivar lost: called with a neighbour whose link is gone, and why.
    :ivar forgotten: called with a neighbour that did not come back.
    """

    def __init__(self, core: Core, now: float) -> None:
        self._core = core
        self._greetings: dict[Any, _Greeting] = {}
        self._targets: dict[Address, _Target] = {address: _Target(now) for address in core.config.targets}
        self.arrived: Callable[[Neighbour, float], None]
        self.rebooted: Callable[[Neighbour, float], None]
        self.lost: Callable[[Neighbour, str, float], None]
        self.forgotten: Callable[[Neighbour, float], None]
        for address in self._targets:
            core.at(now, self._dial, address)
        if core.config.ping_every:
            core.at(now + core.config.ping_every, self._look_round)

    def greetings(self) -> dict[Any, float]:
        """Return the links whose other end is not known yet, and when each was opened; the oldest comes first."""
        return {peer: greeting.since for peer, greeting in self._greetings.items()}

    # Links

    def connected(self, peer: Peer, now: float) -> None:
        """A link is open."""
        core = self._core
        ours = Hello(core.config.node, core.config.boot, core.location, core.rng.randbytes(NONCE_SIZE))
        if not peer.dialled:
            self._make_room(peer.address[0], now)
        self._greetings[peer] = greeting = _Greeting(ours, now)
        core.at(now + core.config.greeting_timeout, self._greeted_late, peer, greeting)
        if peer.dialled and peer.address in self._targets:
            target = self._targets[peer.address]
            target.dialling, target.link = False, peer
        core.effects.append(Write([ours], peer))

    def dial_failed(self, address: Address, now: float) -> None:
        """Nobody is there."""
        target = self._targets.get(address)
        if target is not None:
            target.dialling = False
            self._dial_later(address, target, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """A link is gone."""
        self._greetings.pop(peer, None)
        self._free_target(peer, now)
        neighbour = self._core.links.pop(peer, None)
        if neighbour is not None and neighbour.link == peer:
            self._gone(neighbour, reason, now)

    def first_words(self, message: Message, peer: Peer, now: float) -> None:
        """Somebody who is not known yet says something."""
        greeting = self._greetings.get(peer)
        if greeting is None:
            return
        core, ours = self._core, greeting.ours
        if greeting.hello is None and isinstance(message, Hello):
            if message.node == core.config.node:
                self._refuse(peer, "self", now)
                return
            greeting.hello = message
            core.effects.append(Write([Prove(_proof(core.config.secret, ours, message))], peer))
        elif greeting.hello is not None and isinstance(message, Prove):
            hello = greeting.hello
            if not hmac.compare_digest(message.proof, _proof(core.config.secret, hello, ours)):
                core.tell(
                    Complaint(f"{peer.address[0]} does not know the secret of this network, or we not that of its")
                )
                self._refuse(peer, "wrong_secret", now)
                return
            del self._greetings[peer]
            self._meet(hello, peer, now)
        else:
            self._refuse(peer, "out_of_turn", now)

    def _make_room(self, host: str, now: float) -> None:
        """Close the oldest link of a host that has as many as it may whose other ends are not known."""
        # A dictionary keeps the order: the first is the oldest.
        unknown = [peer for peer in self._greetings if not peer.dialled and peer.address[0] == host]
        if len(unknown) >= self._core.config.max_greetings_per_host:
            peer = unknown[0]
            self._refuse(peer, "silent", now)

    def _greeted_late(self, peer: Peer, greeting: _Greeting, now: float) -> None:
        if self._greetings.get(peer) is greeting:
            self._refuse(peer, "late", now)

    def _refuse(self, peer: Peer, why: str, now: float) -> None:
        core = self._core
        core.counts[f"refused_{why}"] += 1
        self._greetings.pop(peer, None)
        core.effects.append(HangUp(peer))
        self._free_target(peer, now)

    def _meet(self, hello: Hello, peer: Peer, now: float) -> None:
        core = self._core
        known = core.neighbours.get(hello.node)
        target = self._targets.get(peer.address) if peer.dialled else None
        if target is not None:
            target.node, target.pause = hello.node, FIRST_PAUSE
        if known is not None and known.link is not None:
            if not self._replaces(peer, known, now):
                self._refuse(peer, "double", now)
                return
            old = known.link
            core.effects.append(HangUp(old))
            core.links.pop(old, None)
            self._free_target(old, now)
            # What was under way on the first link is lost, and the other end may have given it up long ago.
            self._gone(known, "linked anew", now)
        elif not peer.dialled and len(core.links) >= core.config.max_neighbours:
            self._refuse(peer, "crowded", now)
            return
        self.introduce(peer, hello.node, hello.boot, hello.location, now)

    def _replaces(self, peer: Peer, known: Neighbour, now: float) -> bool:
        """Say whether a second link to a neighbour takes the place of the first."""
        assert known.link is not None, "the caller has looked"
        if peer.dialled == known.link.dialled:
            # Whoever dials again has lost its link. Somebody else could say so, too: that the first is silent shows it.
            every = self._core.config.ping_every
            return bool(every) and now - known.heard_at > every
        lower: bool = self._core.config.node < known.node
        return peer.dialled is lower

    def introduce(self, peer: Any, node: Any, boot: int, location: float, now: float) -> None:
        """Have a neighbour from now on. Experiments, whose links need no greeting, call this at once."""
        core = self._core
        neighbour = core.neighbours.get(node)
        if neighbour is None:
            neighbour = core.neighbours[node] = Neighbour(node, boot, location, peer, now)
        elif neighbour.boot != boot:
            neighbour.link = None
            self.rebooted(neighbour, now)
            neighbour.boot = boot
            core.counts["reboots"] += 1
        neighbour.link, neighbour.location, neighbour.heard_at = peer, location, now
        core.links[peer] = neighbour
        core.tell(NeighbourUp(node, location))
        self.arrived(neighbour, now)

    def _gone(self, neighbour: Neighbour, reason: str, now: float) -> None:
        core = self._core
        neighbour.link = None
        neighbour.lost_at = now
        core.tell(NeighbourDown(neighbour.node, reason))
        core.at(now + core.policy.link_grace, self._forget, neighbour)
        for address, target in self._targets.items():
            if target.node == neighbour.node and target.link is None and not target.dialling:
                target.due = now
                core.at(now, self._dial, address)
        self.lost(neighbour, reason, now)

    def _forget(self, neighbour: Neighbour, now: float) -> None:
        core = self._core
        if neighbour.link is None and now >= neighbour.lost_at + core.policy.link_grace:
            if core.neighbours.get(neighbour.node) is neighbour:
                del core.neighbours[neighbour.node]
            self.forgotten(neighbour, now)

    # Dialling

    def _free_target(self, peer: Peer, now: float) -> None:
        if not self._targets:
            return
        target = self._targets.get(peer.address) if peer.dialled else None
        if target is not None and target.link == peer:
            target.link = None
            self._dial_later(peer.address, target, now)

    def _dial_later(self, address: Address, target: _Target, now: float) -> None:
        core = self._core
        target.due = now + target.pause * core.rng.uniform(0.5, 1.5)
        target.pause = min(2.0 * target.pause, LONGEST_PAUSE)
        core.at(target.due, self._dial, address)

    def _dial(self, address: Address, now: float) -> None:
        target = self._targets[address]
        if target.dialling or target.link is not None or now < target.due:
            return
        known = self._core.neighbours.get(target.node)
        if known is not None and known.link is not None:
            return  # It has dialled us; when it is gone, we dial.
        target.dialling = True
        self._core.effects.append(Dial(address))

    # Neighbours

    def located(self, message: Located, neighbour: Neighbour) -> None:
        """A neighbour is elsewhere."""
        neighbour.location = message.location

    def pinged(self, message: Ping, neighbour: Neighbour, now: float) -> None:
        """A neighbour wants to know whether we are here."""
        self._core.send(neighbour, Pong())

    def _look_round(self, now: float) -> None:
        core, every = self._core, self._core.config.ping_every
        for peer, neighbour in tuple(core.links.items()):
            silence = now - neighbour.heard_at
            if silence > SILENCES * every:
                core.counts["silent_neighbours"] += 1
                core.effects.append(HangUp(peer))
                self.disconnected(peer, "silent", now)
            elif silence > every / 2:
                core.send(neighbour, Ping())
        core.at(now + every, self._look_round)


def _proof(secret: bytes | None, speaker: Hello, hearer: Hello) -> bytes:
    """Return what ``speaker`` shows that it knows the secret with; for this link and this end of it only."""
    if secret is None:
        return b""
    return hmac.digest(secret, _LABEL + cbor2.dumps([*speaker, *hearer]), "sha256")
