"""Discovery of nodes, handshakes and heartbeats (document 004, "Discovery phase" and "Work phase").

A node dials every known node and sends its requests on the connections that it dialled. Replies return on the same
connection. Each starts with the DscReq of document 004. A peer of this implementation then gets a Hello, and the
connection stays open. Other peers are polled, with one parcel per connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Protocol

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.effects import Address, Close, Dial, Effect, Peer, Write
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.parcels.config import NodeConfig, check_text
from fyrehose_twisted.parcels.node.neighbours import (
    HEARSAY_ATTEMPTS,
    DialResult,
    DialState,
    DialTarget,
    InboundPeer,
    Neighbour,
    Neighbours,
    format_address,
)
from fyrehose_twisted.parcels.node.table_shares import TableEntry, TableQuota
from fyrehose_twisted.parcels.wire.auth import dialler_proof, same_proof, welcome_proof
from fyrehose_twisted.parcels.wire.messages import (
    HEARTBEAT_INTERVAL,
    MAX_NAME,
    Extension,
    Heartbeat,
    Hello,
    Message,
    Mode,
    NodeInfo,
    Parcel,
    ParcelType,
    Proof,
    RefusalReason,
    Refused,
    Welcome,
    node_id,
)

EXTENSION_VERSION = 1
DOCUMENT_POLL_INTERVAL = 1.5
"""Seconds between DscReqs to a peer that supports only document 004."""
REPLY_TIMEOUT = 3.0
"""Seconds within which a dialled peer has to reply."""
INBOUND_IDLE_TIMEOUT = 30.0
"""Seconds of silence after which an inbound connection is closed."""
WARNING_INTERVAL = 60.0
"""Seconds for which a repeated warning about one host is suppressed."""
ALIAS_RETRY_DELAY = 30.0
"""Seconds before redialling an address of a node that is already connected at another address."""
MAX_BODY_NEIGHBOURS = 4
"""Neighbours with short names and IPv4 addresses that fit into the body of a DscRes."""
MAX_TARGETS = 4
"""Addresses to dial per permitted neighbour."""


class DiscoveryListener(Protocol):
    """Callbacks of discovery to its node."""

    @property
    def cluster_id(self) -> int:
        """Id of the node's cluster; 0 for none."""

    @property
    def sequence(self) -> int:
        """Sequence number of the node's last event."""

    @property
    def term(self) -> int:
        """Raft term of the node."""

    def adopt_cluster_id(self, cluster_id: int) -> None:
        """Called when a peer belongs to a cluster; the node adopts it if it is in none."""

    def peer_ready(self, member: MemberId, now: float) -> None:
        """Called when requests can be sent to ``member``."""

    def peer_lost(self, member: MemberId) -> None:
        """Called when requests can no longer be sent to ``member``."""

    def peer_suspected(self, member: MemberId, now: float) -> None:
        """Called when ``member`` is presumed dead."""

    def neighbour_added(self, neighbour: Neighbour) -> None:
        """Called when a node was added to the neighbours."""

    def neighbour_removed(self, neighbour: Neighbour, reason: str) -> None:
        """Called when a node was removed from the neighbours."""

    def sequence_reported(self, sequence: int, ours: bool) -> None:
        """Called when a peer reported its last sequence number."""

    def warn(self, text: str) -> None:
        """Called with a warning for the operator."""

    def keep_dialling(self, address: Address) -> bool:
        """Return whether a member listens at ``address``, so that it is dialled even if it does not answer."""


class Discovery:
    """Discovery state and connections of one node.

    :param me: member id of this node.
    :ivar mode: mode that is reported to others.
    :ivar targets: addresses to dial.
    :ivar inbound: peers that dialled this node, by connection number.
    :ivar ready_targets: dialled peers to which requests can be sent.
    :ivar drops: dropped messages and refused peers, by reason.
    """

    def __init__(self, config: NodeConfig, me: MemberId, listener: DiscoveryListener, rng: Random, now: float) -> None:
        self.me = me
        self.mode = Mode.DSC
        self.targets: dict[Address, DialTarget] = {}
        self.inbound: dict[int, InboundPeer] = {}
        self.ready_targets: dict[MemberId, DialTarget] = {}
        self.drops: Counter[str] = Counter()
        self._config = config
        self._listener = listener
        self._rng = rng
        self._dialled: dict[int, DialTarget] = {}
        self._dials: list[Effect] = []
        self._writes: dict[Peer, list[Message]] = {}
        self._closes: list[Peer] = []
        self._warned: set[tuple[Address, str]] = set()
        self._warned_since = now
        self._heartbeat_at = now + HEARTBEAT_INTERVAL
        ours = Extension(EXTENSION_VERSION, me.incarnation, config.cluster_tag)
        self._info = NodeInfo(node_id(me.name), Mode.DSC, me.name, config.advertise, ours)
        secret = config.secret is not None
        self.neighbours = Neighbours(self._info, config.max_neighbours, secret=secret)
        self._quota = TableQuota(MAX_TARGETS * config.max_neighbours, secret=secret)
        for address in config.neighbours:
            if address != config.advertise:
                self.targets.setdefault(address, DialTarget(address, now, configured=True))

    # State

    @property
    def info(self) -> NodeInfo:
        """Information that this node sends about itself."""
        return self._info._replace(mode=self.mode)

    @property
    def configured(self) -> list[DialTarget]:
        """Addresses configured by the operator, except this node's own."""
        return [one for one in self.targets.values() if one.configured and one.result is not DialResult.SELF]

    def is_alive(self, member: MemberId, now: float) -> bool:
        """Return whether a member is this node or a live neighbour."""
        known = self.neighbours.get(member.name)
        return member == self.me or (known is not None and known.member == member and known.is_alive(now))

    def next_deadline(self) -> float:
        """Return the time at which :meth:`tick` is due."""
        deadline = self._heartbeat_at
        if self.mode in (Mode.SHUTDOWN, Mode.PANIC):
            return deadline
        for target in self.targets.values():
            if target.state is not DialState.READY and target.next_at < deadline:
                deadline = target.next_at
        return deadline

    # Sending

    def write(self, peer: Peer, message: Message) -> None:
        """Queue a message for a connection."""
        writes = self._writes.get(peer)
        if writes is None:
            self._writes[peer] = [message]
        else:
            writes.append(message)

    def request(self, member: MemberId, message: Message) -> bool:
        """Queue a request to ``member``; return whether it is connected."""
        target = self.ready_targets.get(member)
        if target is None or target.peer is None:
            return False
        self.write(target.peer, message)
        return True

    def close_connection(self, peer: Peer) -> None:
        """Close a connection after its queued messages are sent."""
        self._closes.append(peer)
        self._drop_connection(peer)

    def drain(self) -> list[Effect]:
        """Return the effects to carry out."""
        if not (self._writes or self._dials or self._closes):
            return []
        effects = self._dials
        effects.extend(Write(messages, peer) for peer, messages in self._writes.items())
        effects.extend(Close(peer) for peer in self._closes)
        self._dials, self._writes, self._closes = [], {}, []
        return effects

    def _drop_connection(self, peer: Peer) -> None:
        self.inbound.pop(peer.number, None)
        target = self._dialled.pop(peer.number, None)
        if target is not None and target.peer is not None and target.peer.number == peer.number:
            target.peer = None

    # Connections

    def connected(self, peer: Peer, now: float) -> None:
        """Process an opened connection."""
        if not peer.dialled:
            if len(self.inbound) >= self._config.max_links:
                self.drops["too-many-links"] += 1
                self._send_error(peer, "this node has too many connections; try again later")
                self.close_connection(peer)
                return
            self.inbound[peer.number] = InboundPeer(peer, now)
            return
        target = self.targets.get(peer.address)
        if target is None or target.state is not DialState.DIALLING:
            # The reference implementation crashes on a connection that closes without data.
            self.write(peer, Parcel(False, ParcelType.DSC_REQ, self._info.id, self.info))
            self.close_connection(peer)
            return
        target.state, target.peer = DialState.DISCOVERING, peer
        target.next_at = now + REPLY_TIMEOUT
        self._dialled[peer.number] = target
        if target.queries_sequence:
            self.write(peer, Parcel(False, ParcelType.SEQ_REQ, self._info.id))
        else:
            self.write(peer, Parcel(False, ParcelType.DSC_REQ, self._info.id, self.info))

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """Process a failed connection attempt."""
        target = self.targets.get(address)
        if target is None or target.state is not DialState.DIALLING:
            return
        if reason == "refused":
            target.result = DialResult.CONNECTION_REFUSED
        self._attempt_failed(target, f"cannot be reached at {format_address(address)}: {reason}", now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """Process the end of a connection."""
        if not peer.dialled:
            self.inbound.pop(peer.number, None)
            return
        target = self._dialled.pop(peer.number, None)
        if target is None or target.peer != peer:
            return
        if target.state is DialState.READY:
            self._lose_peer(target)
            target.connection_closed(now, immediately=True)
        elif target.state is DialState.DISCOVERING and target.queries_sequence:
            # The reference implementation closes the connection on a SeqReq, so that counts as an answer.
            target.queries_sequence = False
            target.connection_closed(now, immediately=False)
            target.next_at = now + DOCUMENT_POLL_INTERVAL
        else:
            self._attempt_failed(target, f"closed the connection: {reason}", now)

    def _lose_peer(self, target: DialTarget) -> None:
        member = target.member
        if member is not None and self.ready_targets.get(member) is target:
            del self.ready_targets[member]
            self._listener.peer_lost(member)

    def _attempt_failed(self, target: DialTarget, reason: str, now: float) -> None:
        target.attempts += 1
        target.queries_sequence = False
        target.connection_closed(now, immediately=False)
        known = self.neighbours.get(target.name) if target.name else None
        if known is None or known.info.host != target.address or known.member in self.ready_targets:
            pass
        elif known.member is not None or target.result is DialResult.CONNECTION_REFUSED:
            self._remove_neighbour(known, reason, now)
        if (
            not target.configured
            and target.attempts >= HEARSAY_ATTEMPTS
            and not self._listener.keep_dialling(target.address)
        ):
            del self.targets[target.address]

    def _remove_neighbour(self, known: Neighbour, reason: str, now: float) -> None:
        known.suspected = True
        self.neighbours.remove(known.info.name)
        self._listener.neighbour_removed(known, reason)
        member = known.member
        if member is not None:
            target = self.ready_targets.get(member)
            if target is not None:
                peer = target.peer
                self._lose_peer(target)
                if peer is not None:
                    self.close_connection(peer)
                target.connection_closed(now, immediately=False)
            self._listener.peer_suspected(member, now)

    # Time

    def tick(self, now: float) -> None:
        """Carry out what is due at ``now``."""
        if now >= self._heartbeat_at:
            self._heartbeat_at = max(self._heartbeat_at + HEARTBEAT_INTERVAL, now + HEARTBEAT_INTERVAL / 2)
            self.send_heartbeats()
            self._expire(now)
        for target in list(self.targets.values()):
            if target.next_at > now or target.state is DialState.READY or self.mode in (Mode.SHUTDOWN, Mode.PANIC):
                continue
            if target.state is DialState.IDLE:
                target.state = DialState.DIALLING
                target.next_at = now + 4 * REPLY_TIMEOUT
                self._dials.append(Dial(target.address))
            elif target.state is DialState.DIALLING:
                self._attempt_failed(target, "cannot be reached: no answer", now)
            else:
                if target.peer is not None:
                    self.close_connection(target.peer)
                self._attempt_failed(target, "does not answer", now)

    def send_heartbeats(self) -> None:
        """Send a heartbeat to each ready peer."""
        heartbeat = Heartbeat(self.mode, self._listener.term, self._listener.sequence)
        for target in self.ready_targets.values():
            if target.peer is not None:
                self.write(target.peer, heartbeat)

    def _expire(self, now: float) -> None:
        if now - self._warned_since > WARNING_INTERVAL:
            self._warned.clear()
            self._warned_since = now
        for known in self.neighbours.timed_out(now):
            self._remove_neighbour(known, f"was silent for {now - known.heard_at:.1f} s", now)
        for caller in list(self.inbound.values()):
            if now - caller.heard_at > INBOUND_IDLE_TIMEOUT:
                self.drops["idle"] += 1
                self.close_connection(caller.peer)

    def announce_shutdown(self) -> None:
        """Announce the shutdown to all peers."""
        self.mode = Mode.SHUTDOWN
        self.send_heartbeats()

    def close_all(self, now: float) -> None:
        """Close all connections."""
        for target in self.targets.values():
            peer = target.peer
            if peer is not None:
                self._lose_peer(target)
                self.close_connection(peer)
                target.connection_closed(now, immediately=True)
        for caller in list(self.inbound.values()):
            self.close_connection(caller.peer)

    # Inbound peers

    def parcel_from_inbound(self, parcel: Parcel, caller: InboundPeer, now: float) -> None:
        """Process a parcel of document 004 from an inbound peer.

        Every parcel is answered, because the reference implementation crashes if the connection closes instead.
        """
        caller.heard_at = now
        identity = parcel.identity
        if parcel.type is ParcelType.DSC_REQ and identity is not None:
            self._discovery_requested(identity, caller, now)
        elif parcel.type in (ParcelType.SEQ_REQ, ParcelType.SEQ_RES) and parcel.body is None:
            answer = Parcel(True, ParcelType.SEQ_RES, self._info.id, self._listener.sequence)
            self.write(caller.peer, answer)
        else:
            self.drops["out-of-place"] += 1
            self._send_error(caller.peer, f"a {parcel.type.value} with this body is not expected here")

    def _name_problem(self, info: NodeInfo) -> str | None:
        """Return why a name is invalid, and count it; ``None`` for a valid name."""
        try:
            check_text("name", info.name, MAX_NAME)
        except ConfigurationError as error:
            self.drops["bad-name"] += 1
            return str(error)
        return None

    def _send_error(self, peer: Peer, text: str) -> None:
        self.write(peer, Parcel(True, ParcelType.PROTO_ERROR, self._info.id, None, text.encode()))

    def _discovery_requested(self, info: NodeInfo, caller: InboundPeer, now: float) -> None:
        unfit = self._name_problem(info)
        if unfit is not None:
            self._warn_once(info.host, f"a node at {format_address(info.host)} was refused: {unfit}")
            self._send_error(caller.peer, unfit)
            return
        ours = info.ours
        refused: tuple[RefusalReason, str] | None = None
        if ours is not None and ours.cluster != self._config.cluster_tag:
            refused = RefusalReason.WRONG_CLUSTER, f"this is cluster {self._config.cluster!r}, not yours"
        else:
            refused = self.neighbours.conflict(info, now)
        if refused is not None:
            self.drops[refused[0].name.lower().replace("_", "-")] += 1
            self._warn_once(info.host, f"{info.name!r} at {format_address(info.host)} was refused: {refused[1]}")
            self._send_error(caller.peer, refused[1])
            return
        caller.info = info
        listed = [one if ours is not None else one._replace(ours=None) for one in self.neighbours.node_infos()]
        own = self.info if ours is not None else self.info._replace(ours=None)
        listed = [one for one in listed if one.name != info.name]
        if ours != self._info.ours:  # Otherwise this node has dialled itself.
            # With a secret, a node of this implementation is added once it has proved the secret.
            known = ours is None or self._config.secret is None
            self._register_from(info, caller.peer.address[0], now, known=known, trusted=False)
        # This node comes last, as in the reference implementation. If not all fit into the body, it comes first,
        # because some peers read only the body.
        listed = [*listed, own] if len(listed) < MAX_BODY_NEIGHBOURS else [own, *listed]
        self.write(caller.peer, Parcel(True, ParcelType.DSC_RES, self._info.id, tuple(listed)))

    def _register_from(self, info: NodeInfo, source: str, now: float, *, known: bool, trusted: bool) -> None:
        """Register and dial a node that described itself on a connection from ``source``.

        :param known: whether to add it to the neighbours.
        :param trusted: whether it proved the secret.
        """
        elsewhere = info.host[0] != source and not (_is_loopback(info.host[0]) and _is_loopback(source))
        if elsewhere and not trusted and info.host not in self.targets:
            # Dialling a claimed foreign address would let a peer direct traffic at a third party.
            self.drops["foreign-address"] += 1
            self._warn_once(
                info.host, f"{info.name!r} advertises {format_address(info.host)}, but connects from {source}"
            )
            return
        if known:
            self.register(info, now, trusted=trusted)
        self.add_addresses([info.host], now, dial_now=True, trusted=trusted)

    def register(self, info: NodeInfo, now: float, *, trusted: bool) -> None:
        """Add or update a neighbour.

        :param trusted: whether it proved the secret, or the operator configured its address.
        """
        displaced = self.neighbours.find_displaced(info) if trusted else None
        if displaced is not None:
            self._remove_neighbour(displaced, f"has the id of {info.name!r}, which knows the secret", now)
        before = self.neighbours.get(info.name)
        former = None if before is None else before.member
        kept = self.neighbours.add(info, now, trusted=trusted)
        if kept is None:
            self.drops["too-many-neighbours"] += 1
            return
        if former is not None and former != kept.member:
            target = self.ready_targets.get(former)
            if target is not None:
                if target.peer is not None:
                    self.close_connection(target.peer)
                self._lose_peer(target)
                target.connection_closed(now, immediately=True)
            self._listener.peer_suspected(former, now)
        if before is None:
            self._listener.neighbour_added(kept)

    def add_addresses(
        self, addresses: Iterable[Address], now: float, *, dial_now: bool = False, trusted: bool = False
    ) -> None:
        """Add addresses to dial.

        :param trusted: whether they come from a node that proved the secret.
        """
        for address in addresses:
            target = self.targets.get(address)
            if target is None:
                taken = [TableEntry(one.address[0], one.trusted or one.configured) for one in self.targets.values()]
                if address != self._config.advertise and self._quota.has_room(taken, TableEntry(address[0], trusted)):
                    self.targets[address] = DialTarget(address, now, configured=False, trusted=trusted)
                continue
            target.trusted = target.trusted or trusted
            if dial_now and target.state is DialState.IDLE and target.result is not DialResult.SELF:
                target.next_at = min(target.next_at, now)

    def hello_received(self, hello: Hello, caller: InboundPeer, now: float) -> None:
        """Process the Hello of an inbound peer."""
        caller.heard_at = now
        refused = self._hello_refusal(hello, caller, now)
        if refused is not None:
            self.drops[refused.why.name.lower().replace("_", "-")] += 1
            self._warn_once((caller.peer.address[0], 0), f"{hello.name or 'a publisher'} was refused: {refused.text}")
            self.write(caller.peer, refused)
            self.close_connection(caller.peer)
            return
        welcome = Welcome(self.me.name, self.me.incarnation, self._listener.cluster_id, self._rng.randbytes(16), b"")
        welcome = welcome._replace(proof=welcome_proof(self._config.secret, hello, welcome))
        caller.expected_proof = dialler_proof(self._config.secret, hello, welcome)
        caller.member = MemberId(hello.name, hello.incarnation) if hello.name else None
        caller.cluster_id = hello.founding
        caller.authenticated = False
        self.write(caller.peer, welcome)

    def _hello_refusal(self, hello: Hello, caller: InboundPeer, now: float) -> Refused | None:
        if hello.cluster != self._config.cluster:
            return Refused(
                RefusalReason.WRONG_CLUSTER, f"this is cluster {self._config.cluster!r}, not {hello.cluster!r}"
            )
        if not hello.name:
            return None
        other = self._cluster_id_conflict(hello.founding)
        if other is not None:
            return Refused(RefusalReason.OTHER_FOUNDING, other)
        if caller.info is None or caller.info.name != hello.name:
            return Refused(RefusalReason.NAME_TAKEN, f"{hello.name!r} sent no DscReq before its Hello")
        return None

    def _cluster_id_conflict(self, cluster_id: int) -> str | None:
        own = self._listener.cluster_id
        if own and cluster_id and own != cluster_id:
            return (
                f"there are two clusters named {self._config.cluster!r}, created separately"
                f" ({own:016x}, {cluster_id:016x}); restart the nodes of one of them without their state"
            )
        return None

    def proof_received(self, proof: Proof, caller: InboundPeer, now: float) -> None:
        """Process the Proof of an inbound peer."""
        caller.heard_at = now
        if caller.expected_proof is None or not same_proof(caller.expected_proof, proof.proof):
            self.drops["wrong-secret"] += 1
            self._warn_once(
                (caller.peer.address[0], 0),
                f"{format_address(caller.peer.address)} does not know the secret of this cluster",
            )
            self.write(caller.peer, Refused(RefusalReason.WRONG_SECRET, "wrong secret for this cluster"))
            self.close_connection(caller.peer)
            return
        caller.authenticated = True
        if caller.info is not None and caller.member is not None:
            # Check again, because another node may have taken the name meanwhile.
            refused = self.neighbours.conflict(caller.info, now)
            if refused is not None:
                self.write(caller.peer, Refused(*refused))
                self.close_connection(caller.peer)
                return
            self._register_from(
                caller.info, caller.peer.address[0], now, known=True, trusted=self._config.secret is not None
            )
            if caller.cluster_id:
                self._listener.adopt_cluster_id(caller.cluster_id)

    def request_received(self, caller: InboundPeer, now: float) -> None:
        """Record activity of an authenticated inbound peer."""
        caller.heard_at = now
        member = caller.member
        if member is None:
            return
        known = self.neighbours.get(member.name)
        if known is not None and known.member == member:
            known.heard_at = now
            known.suspected = False
        elif known is None and caller.info is not None:
            self._register_from(
                caller.info, caller.peer.address[0], now, known=True, trusted=self._config.secret is not None
            )

    def heartbeat_received(self, beat: Heartbeat, caller: InboundPeer) -> None:
        """Process a heartbeat."""
        known = None if caller.member is None else self.neighbours.get(caller.member.name)
        if known is not None and known.member == caller.member:
            known.mode, known.sequence = beat.mode, beat.sequence

    # Dialled peers

    def reply_received(self, member: MemberId, now: float) -> None:
        """Record activity of a dialled member."""
        known = self.neighbours.get(member.name)
        if known is not None and known.member == member:
            known.heard_at = now
            known.suspected = False

    def dialled_target(self, peer: Peer) -> DialTarget | None:
        """Return the target of an outbound connection."""
        return self._dialled.get(peer.number)

    def parcel_from_target(self, parcel: Parcel, target: DialTarget, now: float) -> None:
        """Process a parcel of document 004 from a dialled peer."""
        sequence = parcel.body if parcel.type is ParcelType.SEQ_RES and isinstance(parcel.body, int) else None
        if target.state is DialState.READY and sequence is not None:
            self._listener.sequence_reported(sequence, ours=True)
        elif target.state is DialState.DISCOVERING and target.queries_sequence:
            if sequence is not None:
                self._listener.sequence_reported(sequence, ours=False)
            self._close_document_peer(target, now)
        elif target.state is not DialState.DISCOVERING:
            self.drops["out-of-place"] += 1
        elif parcel.type is ParcelType.DSC_RES and parcel.neighbours is not None:
            self._discovery_answered(parcel.id, parcel.neighbours, target, now)
        else:
            text = parcel.data.decode(errors="replace")[:200]
            self._rejected(target, text or f"it answers with a {parcel.type.value}", now)

    def _rejected(self, target: DialTarget, text: str, now: float) -> None:
        """Record that a dialled peer refused this node or was refused by it."""
        target.result = DialResult.REJECTED
        target.queries_sequence = False
        self.drops["refused-by-others"] += 1
        self._warn_once(target.address, f"{format_address(target.address)} refuses this node: {text}")
        if target.peer is not None:
            self.close_connection(target.peer)
        target.connection_closed(now, immediately=False)

    def _discovery_answered(self, sender: int, infos: Sequence[NodeInfo], target: DialTarget, now: float) -> None:
        other = next((one for one in reversed(infos) if one.id == sender), None)
        if other is None:
            # Document 004 does not require a node to list itself.
            other = NodeInfo(sender, Mode.WRK, format_address(target.address), target.address)
        if other.ours is not None and other.ours == self._info.ours:
            target.result = DialResult.SELF
            target.configured = False
            if target.peer is not None:
                self.close_connection(target.peer)
            del self.targets[target.address]
            return
        if other.ours is not None and other.ours.cluster != self._config.cluster_tag:
            self._rejected(target, f"it is of another cluster than {self._config.cluster!r}", now)
            return
        unfit = self._name_problem(other)
        if unfit is not None:
            self._rejected(target, unfit, now)
            return
        refused = self.neighbours.conflict(other, now)
        if refused is not None:
            self._rejected(target, refused[1], now)
            return
        target.attempts = 0
        target.name = other.name
        others = [one for one in infos if one is not other]
        addresses = [one.host for one in others]
        if other.ours is None:
            self.register(other._replace(host=target.address), now, trusted=target.configured)
            self.add_addresses(addresses, now)
            first = target.result is not DialResult.DOCUMENT_ONLY
            target.result = DialResult.DOCUMENT_ONLY
            self._close_document_peer(target, now)
            if first:
                target.queries_sequence, target.next_at = True, now
            return
        target.state = DialState.HELLO_SENT
        target.next_at = now + REPLY_TIMEOUT
        hello = Hello(
            self._config.cluster, self.me.name, self.me.incarnation, self._listener.cluster_id, self._rng.randbytes(16)
        )
        target.hello = hello
        target.member = MemberId(other.name, other.ours.incarnation)
        if self._config.secret is None:
            self.register(other._replace(host=target.address), now, trusted=target.configured)
            self.add_addresses(addresses, now)
        target.reported_nodes = others
        if target.peer is not None:
            self.write(target.peer, hello)

    def _close_document_peer(self, target: DialTarget, now: float) -> None:
        """Close the connection to a peer that supports only document 004 after its one reply."""
        if target.peer is not None:
            self.close_connection(target.peer)
        target.queries_sequence = False
        target.connection_closed(now, immediately=False)
        target.next_at = now + DOCUMENT_POLL_INTERVAL

    def welcome_received(self, welcome: Welcome, target: DialTarget, now: float) -> None:
        """Process the Welcome of a dialled peer."""
        hello, peer = target.hello, target.peer
        if target.state is not DialState.HELLO_SENT or hello is None or peer is None:
            self.drops["out-of-place"] += 1
            return
        member = MemberId(welcome.name, welcome.incarnation)
        if not same_proof(welcome_proof(self._config.secret, hello, welcome), welcome.proof):
            self._rejected(target, "it does not know the secret of this cluster", now)
            return
        other = self._cluster_id_conflict(welcome.founding)
        if other is not None or member != target.member:
            self._rejected(target, other or f"it is {member}, but introduced itself as {target.member}", now)
            return
        self.write(peer, Proof(dialler_proof(self._config.secret, hello, welcome)))
        known = self.ready_targets.get(member)
        if known is not None and known is not target:
            self.close_connection(peer)
            target.connection_closed(now, immediately=False)
            target.next_at = now + ALIAS_RETRY_DELAY
            return
        target.state = DialState.READY
        target.result = DialResult.IN_CLUSTER if welcome.founding else DialResult.NO_CLUSTER
        target.backoff = 0.25
        self.ready_targets[member] = target
        info = NodeInfo(
            node_id(member.name),
            Mode.WRK if welcome.founding else Mode.DSC,
            member.name,
            target.address,
            Extension(EXTENSION_VERSION, member.incarnation, self._config.cluster_tag),
        )
        before, trusted = self.neighbours.get(member.name), self._config.secret is not None
        if before is None or before.member != member:
            self.register(info, now, trusted=trusted or target.configured)
        target.trusted = target.trusted or trusted
        # The peer lists nodes of this implementation only after they proved the secret, and other nodes at once.
        for one in target.reported_nodes:
            self.add_addresses([one.host], now, trusted=trusted and one.ours is not None)
        self.reply_received(member, now)
        if welcome.founding:
            self._listener.adopt_cluster_id(welcome.founding)
        self.write(peer, Heartbeat(self.mode, self._listener.term, self._listener.sequence))
        self.write(peer, Parcel(False, ParcelType.SEQ_REQ, self._info.id))
        self._listener.peer_ready(member, now)

    def refusal_received(self, refused: Refused, target: DialTarget, now: float) -> None:
        """Process a refusal by a dialled peer."""
        if target.state is DialState.READY:
            self._lose_peer(target)
        self._rejected(target, refused.text, now)

    def _warn_once(self, address: Address, text: str) -> None:
        """Warn about a host, unless the same warning is recent."""
        if (address, text) in self._warned:
            return
        if len(self._warned) >= MAX_TARGETS * self._config.max_neighbours:
            return
        self._warned.add((address, text))
        self._listener.warn(text)


def _is_loopback(host: str) -> bool:
    return host == "::1" or host.startswith("127.")
