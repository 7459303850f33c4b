"""Links to neighbours: dialling, handshake and keepalive (boot ids are of document 003; the rest is this library's).

Both ends of a link introduce themselves, and prove that they know the secret if the network has one. Two nodes keep one
link. If each dials the other, the link dialled by the node with the lower id stays.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import cbor2

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.freenet.events import NeighbourDown, NeighbourUp, OperatorWarning
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.wire.messages import NONCE_SIZE, Hello, Located, Message, Ping, Pong, Prove
from fyrehose_twisted.host_addresses import source_network

INITIAL_RETRY_DELAY, MAX_RETRY_DELAY = 0.5, 30.0
"""First and maximum delay in seconds before a failed dial is retried."""
MAX_SILENT_INTERVALS = 3
"""Keepalive intervals of silence after which a neighbour is considered gone."""
_PROOF_LABEL = b"fyrehose freenet link\0"


class _Handshake:
    """Unfinished handshake on one link."""

    __slots__ = ("opened_at", "our_hello", "their_hello")

    def __init__(self, our_hello: Hello, now: float) -> None:
        self.our_hello = our_hello
        self.opened_at = now
        self.their_hello: Hello | None = None


class _Target:
    """Address that the node keeps a link to."""

    __slots__ = ("dial_at", "dialling", "link", "node", "retry_delay")

    def __init__(self, now: float) -> None:
        self.dial_at = now
        self.retry_delay = INITIAL_RETRY_DELAY
        self.dialling = False
        self.link: Any | None = None
        self.node: Any | None = None


class PeerLinks:
    """Links of a node: dials targets, completes handshakes, and detects lost neighbours.

    :ivar on_neighbour_up: called with a neighbour whose link came up.
    :ivar on_neighbour_rebooted: called with a neighbour that returned with another boot id, and so without its state.
    :ivar on_neighbour_lost: called with a neighbour whose link was lost, and the reason.
    :ivar on_neighbour_forgotten: called with a neighbour that did not return within ``link_grace``.
    """

    def __init__(self, context: NodeContext, now: float) -> None:
        self._context = context
        self._handshakes: dict[Any, _Handshake] = {}
        self._targets: dict[Address, _Target] = {address: _Target(now) for address in context.config.targets}
        self.on_neighbour_up: Callable[[Neighbour, float], None]
        self.on_neighbour_rebooted: Callable[[Neighbour, float], None]
        self.on_neighbour_lost: Callable[[Neighbour, str, float], None]
        self.on_neighbour_forgotten: Callable[[Neighbour, float], None]
        for address in self._targets:
            context.call_at(now, self._dial, address)
        if context.config.ping_every:
            context.call_at(now + context.config.ping_every, self._check_liveness)

    def handshakes(self) -> dict[Any, float]:
        """Return the links with an unfinished handshake, and the time at which each was opened, oldest first."""
        return {peer: handshake.opened_at for peer, handshake in self._handshakes.items()}

    # Links

    def connected(self, peer: Peer, now: float) -> None:
        """Start the handshake on a new link."""
        core = self._context
        ours = Hello(core.config.node, core.config.boot, core.location, core.rng.randbytes(NONCE_SIZE))
        if not peer.dialled:
            self._close_oldest_handshake(peer.address[0], now)
        self._handshakes[peer] = handshake = _Handshake(ours, now)
        core.call_at(now + core.config.handshake_timeout, self._handshake_timed_out, peer, handshake)
        if peer.dialled and peer.address in self._targets:
            target = self._targets[peer.address]
            target.dialling, target.link = False, peer
        core.effects.append(Write([ours], peer))

    def dial_failed(self, address: Address, now: float) -> None:
        """Schedule another dial after a failed one."""
        target = self._targets.get(address)
        if target is not None:
            target.dialling = False
            self._dial_later(address, target, now)

    def disconnected(self, peer: Any, reason: str, now: float) -> None:
        """Handle the loss of a link."""
        self._handshakes.pop(peer, None)
        self._release_target(peer, now)
        neighbour = self._context.links.pop(peer, None)
        if neighbour is not None and neighbour.link == peer:
            self._link_lost(neighbour, reason, now)

    def handshake_received(self, message: Message, peer: Any, now: float) -> None:
        """Handle a message on a link whose handshake is unfinished, or that is unknown.

        :param peer: not typed as a Peer, since links of experiments are numbers.
        """
        handshake = self._handshakes.get(peer)
        if handshake is None:
            return
        core, ours = self._context, handshake.our_hello
        if handshake.their_hello is None and isinstance(message, Hello):
            if message.node == core.config.node:
                self._refuse(peer, "self", now)
                return
            handshake.their_hello = message
            core.effects.append(Write([Prove(_compute_proof(core.config.secret, ours, message))], peer))
        elif handshake.their_hello is not None and isinstance(message, Prove):
            hello = handshake.their_hello
            if not hmac.compare_digest(message.proof, _compute_proof(core.config.secret, hello, ours)):
                core.emit(
                    OperatorWarning(f"{peer.address[0]} and this node have different secrets; check --secret-file")
                )
                self._refuse(peer, "wrong_secret", now)
                return
            del self._handshakes[peer]
            self._complete_handshake(hello, peer, now)
        else:
            self._refuse(peer, "out_of_turn", now)

    def _close_oldest_handshake(self, host: str, now: float) -> None:
        """Close the oldest unfinished handshake of a host that has the maximum number of them."""
        # Dictionaries keep insertion order, so the first is the oldest.
        network = source_network(host)
        unknown = [peer for peer in self._handshakes if not peer.dialled and source_network(peer.address[0]) == network]
        if len(unknown) >= self._context.config.max_handshakes_per_host:
            peer = unknown[0]
            self._refuse(peer, "silent", now)

    def _handshake_timed_out(self, peer: Peer, handshake: _Handshake, now: float) -> None:
        if self._handshakes.get(peer) is handshake:
            self._refuse(peer, "late", now)

    def _refuse(self, peer: Peer, reason: str, now: float) -> None:
        core = self._context
        core.counters[f"refused_{reason}"] += 1
        self._handshakes.pop(peer, None)
        core.effects.append(Close(peer))
        self._release_target(peer, now)

    def _complete_handshake(self, hello: Hello, peer: Peer, now: float) -> None:
        core = self._context
        known = core.neighbours.get(hello.node)
        target = self._targets.get(peer.address) if peer.dialled else None
        if target is not None:
            target.node, target.retry_delay = hello.node, INITIAL_RETRY_DELAY
        if known is not None and known.link is not None:
            if not self._replaces(peer, known, now):
                self._refuse(peer, "double", now)
                return
            old = known.link
            core.effects.append(Close(old))
            core.links.pop(old, None)
            self._release_target(old, now)
            # Messages in flight on the old link are lost. The other end may have closed it long ago.
            self._link_lost(known, "reconnected", now)
        elif not peer.dialled and len(core.links) >= core.config.max_neighbours:
            self._refuse(peer, "crowded", now)
            return
        self.add_neighbour(peer, hello.node, hello.boot, hello.location, now)

    def _replaces(self, peer: Peer, known: Neighbour, now: float) -> bool:
        """Return True if a second link to a neighbour replaces the first."""
        assert known.link is not None, "the caller has checked"
        if peer.dialled == known.link.dialled:
            # A peer that dials again has lost its link. An impostor could do the same, so the old link must be silent.
            every = self._context.config.ping_every
            return bool(every) and now - known.heard_at > every
        lower: bool = self._context.config.node < known.node
        return peer.dialled is lower

    def add_neighbour(self, peer: Any, node: Any, boot: int, location: float, now: float) -> None:
        """Add a neighbour. Experiments, whose links need no handshake, call this directly."""
        core = self._context
        neighbour = core.neighbours.get(node)
        if neighbour is None:
            neighbour = core.neighbours[node] = Neighbour(node, boot, location, peer, now)
        elif neighbour.boot != boot:
            neighbour.link = None
            self.on_neighbour_rebooted(neighbour, now)
            neighbour.boot = boot
            core.counters["reboots"] += 1
        neighbour.link, neighbour.location, neighbour.heard_at = peer, location, now
        core.links[peer] = neighbour
        core.emit(NeighbourUp(node, location))
        self.on_neighbour_up(neighbour, now)

    def _link_lost(self, neighbour: Neighbour, reason: str, now: float) -> None:
        core = self._context
        neighbour.link = None
        neighbour.lost_at = now
        core.emit(NeighbourDown(neighbour.node, reason))
        core.call_at(now + core.policy.link_grace, self._forget, neighbour)
        for address, target in self._targets.items():
            if target.node == neighbour.node and target.link is None and not target.dialling:
                target.dial_at = now
                core.call_at(now, self._dial, address)
        self.on_neighbour_lost(neighbour, reason, now)

    def _forget(self, neighbour: Neighbour, now: float) -> None:
        core = self._context
        if neighbour.link is None and now >= neighbour.lost_at + core.policy.link_grace:
            if core.neighbours.get(neighbour.node) is neighbour:
                del core.neighbours[neighbour.node]
            self.on_neighbour_forgotten(neighbour, now)

    # Dialling

    def _release_target(self, peer: Any, now: float) -> None:
        if not self._targets:
            return
        target = self._targets.get(peer.address) if peer.dialled else None
        if target is not None and target.link == peer:
            target.link = None
            self._dial_later(peer.address, target, now)

    def _dial_later(self, address: Address, target: _Target, now: float) -> None:
        core = self._context
        target.dial_at = now + target.retry_delay * core.rng.uniform(0.5, 1.5)
        target.retry_delay = min(2.0 * target.retry_delay, MAX_RETRY_DELAY)
        core.call_at(target.dial_at, self._dial, address)

    def _dial(self, address: Address, now: float) -> None:
        target = self._targets[address]
        if target.dialling or target.link is not None or now < target.dial_at:
            return
        known = self._context.neighbours.get(target.node)
        if known is not None and known.link is not None:
            return  # The peer dialled this node. If that link is lost, this node dials.
        target.dialling = True
        self._context.effects.append(Dial(address))

    # Neighbours

    def neighbour_moved(self, message: Located, neighbour: Neighbour) -> None:
        """Record the new location of a neighbour."""
        neighbour.location = message.location

    def ping_received(self, message: Ping, neighbour: Neighbour, now: float) -> None:
        """Answer a Ping."""
        self._context.send(neighbour, Pong())

    def _check_liveness(self, now: float) -> None:
        core, every = self._context, self._context.config.ping_every
        for peer, neighbour in tuple(core.links.items()):
            silence = now - neighbour.heard_at
            if silence > MAX_SILENT_INTERVALS * every:
                core.counters["silent_neighbours"] += 1
                core.effects.append(Close(peer))
                self.disconnected(peer, "silent", now)
            elif silence > every / 2:
                core.send(neighbour, Ping())
        core.call_at(now + every, self._check_liveness)


def _compute_proof(secret: bytes | None, sender: Hello, receiver: Hello) -> bytes:
    """Return the proof by ``sender`` that it knows the secret; valid only for this link and direction."""
    if secret is None:
        return b""
    return hmac.digest(secret, _PROOF_LABEL + cbor2.dumps([*sender, *receiver]), "sha256")
