"""How a node finds others and stays in touch with them (document 004, "Discovery phase" and "Work phase").

A node dials everybody whom it knows, and sends its requests on the connections that it dialled; answers come back on
the same one. On each, the document's DscReq goes first. Who turns out to speak our own parcels gets a Hello, and the
connection stays open; who does not is asked again from time to time, one parcel a connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Protocol

from fyrehose_twisted.effects import Address, Dial, Effect, HangUp, Peer, Write
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.parcels.config import NodeConfig, check_text
from fyrehose_twisted.parcels.node.neighbours import (
    HEARSAY_ATTEMPTS,
    Caller,
    Neighbour,
    Neighbours,
    Said,
    Stage,
    Target,
    show,
)
from fyrehose_twisted.parcels.node.table_shares import Place, Shares
from fyrehose_twisted.parcels.wire.auth import dialler_proof, same_proof, welcome_proof
from fyrehose_twisted.parcels.wire.messages import (
    BEAT,
    MAX_NAME,
    Beat,
    Extension,
    Hello,
    Member,
    Message,
    Mode,
    NodeInfo,
    Parcel,
    ParcelType,
    Proof,
    Refusal,
    Refused,
    Welcome,
    node_id,
)

VERSION = 1
ASK_AGAIN = 1.5
"""Seconds between two DscReqs to somebody who speaks only the document."""
ANSWER_IN = 3.0
"""Seconds after which whoever was dialled has to have answered."""
IDLE = 30.0
"""Seconds of silence after which the connection of a caller is closed."""
WARN_AGAIN = 60.0
"""Seconds for which the same is not said again of the same host."""
ALIAS_AGAIN = 30.0
"""Seconds after which an address that leads to somebody who is reached elsewhere already is tried again."""
MOST_IN_BODY = 4
"""Neighbours with short names and IPv4 addresses that fit the body of a DscRes."""
MAX_TARGETS = 4
"""Addresses to dial for each neighbour that there may be."""


class Owner(Protocol):
    """What discovery tells the node."""

    @property
    def founding(self) -> int:
        """Which cluster the node is in; 0 for none."""

    @property
    def sequence(self) -> int:
        """Number of the last event that the node has."""

    @property
    def term(self) -> int:
        """The node's term."""

    def adopt(self, founding: int) -> None:
        """Somebody belongs to a cluster, and the node to none yet."""

    def line_ready(self, member: Member, now: float) -> None:
        """Requests can be sent to ``member``."""

    def line_lost(self, member: Member) -> None:
        """They cannot any more."""

    def suspected(self, member: Member, now: float) -> None:
        """``member`` is gone, as far as anybody can know."""

    def neighbour_came(self, neighbour: Neighbour) -> None:
        """Somebody is a neighbour now."""

    def neighbour_went(self, neighbour: Neighbour, why: str) -> None:
        """Somebody is not one any longer."""

    def sequence_answered(self, sequence: int, ours: bool) -> None:
        """Somebody said up to where it has events."""

    def warn(self, text: str) -> None:
        """The operator should know."""

    def keeps(self, address: Address) -> bool:
        """Whether to go on dialling an address that does not answer, for a member listens there."""


class Discovery:
    """See the module.

    :param me: this life of this node.
    :ivar mode: what others are told that this node is at.
    :ivar targets: where it dials.
    :ivar callers: who dialled it, by the number of the connection.
    :ivar counts: what was dropped, and why.
    """

    def __init__(self, config: NodeConfig, me: Member, owner: Owner, rng: Random, now: float) -> None:
        self.me = me
        self.mode = Mode.DSC
        self.targets: dict[Address, Target] = {}
        self.callers: dict[int, Caller] = {}
        self.lines: dict[Member, Target] = {}
        self.counts: Counter[str] = Counter()
        self._config = config
        self._owner = owner
        self._rng = rng
        self._dialled: dict[int, Target] = {}
        self._dials: list[Effect] = []
        self._writes: dict[Peer, list[Message]] = {}
        self._hang_ups: list[Peer] = []
        self._warned: set[tuple[Address, str]] = set()
        self._warned_since = now
        self._beat_at = now + BEAT
        ours = Extension(VERSION, me.incarnation, config.cluster_tag)
        self._info = NodeInfo(node_id(me.name), Mode.DSC, me.name, config.advertise, ours)
        secret = config.secret is not None
        self.neighbours = Neighbours(self._info, config.max_neighbours, secret=secret)
        self._shares = Shares(MAX_TARGETS * config.max_neighbours, secret=secret)
        for address in config.neighbours:
            if address != config.advertise:
                self.targets.setdefault(address, Target(address, now, configured=True))

    # Facts

    @property
    def info(self) -> NodeInfo:
        """What this node says of itself."""
        return self._info._replace(mode=self.mode)

    @property
    def configured(self) -> list[Target]:
        """The addresses that the operator named, but for this node's own."""
        return [one for one in self.targets.values() if one.configured and one.said is not Said.ITSELF]

    def alive(self, member: Member, now: float) -> bool:
        """Whether somebody counts."""
        known = self.neighbours.get(member.name)
        return member == self.me or (known is not None and known.member == member and known.alive(now))

    def next_deadline(self) -> float:
        """When :meth:`tick` wants to be called."""
        deadline = self._beat_at
        if self.mode in (Mode.SHUTDOWN, Mode.PANIC):
            return deadline
        for target in self.targets.values():
            if target.stage is not Stage.READY and target.next_at < deadline:
                deadline = target.next_at
        return deadline

    # Sending

    def write(self, peer: Peer, message: Message) -> None:
        """Send a message on a connection."""
        writes = self._writes.get(peer)
        if writes is None:
            self._writes[peer] = [message]
        else:
            writes.append(message)

    def request(self, member: Member, message: Message) -> bool:
        """Send a request to ``member``; returns whether there is a connection for it."""
        target = self.lines.get(member)
        if target is None or target.peer is None:
            return False
        self.write(target.peer, message)
        return True

    def hang_up(self, peer: Peer) -> None:
        """Close a connection, once what was written has left."""
        self._hang_ups.append(peer)
        self._forget(peer)

    def drain(self) -> list[Effect]:
        """Return what is to be done."""
        if not (self._writes or self._dials or self._hang_ups):
            return []
        effects = self._dials
        effects.extend(Write(messages, peer) for peer, messages in self._writes.items())
        effects.extend(HangUp(peer) for peer in self._hang_ups)
        self._dials, self._writes, self._hang_ups = [], {}, []
        return effects

    def _forget(self, peer: Peer) -> None:
        self.callers.pop(peer.number, None)
        target = self._dialled.pop(peer.number, None)
        if target is not None and target.peer is not None and target.peer.number == peer.number:
            target.peer = None

    # Connections

    def connected(self, peer: Peer, now: float) -> None:
        """A connection is open."""
        if not peer.dialled:
            if len(self.callers) >= self._config.max_links:
                self.counts["too-many-links"] += 1
                self._complain(peer, "there are too many connections to this node; try again later")
                self.hang_up(peer)
                return
            self.callers[peer.number] = Caller(peer, now)
            return
        target = self.targets.get(peer.address)
        if target is None or target.stage is not Stage.DIALLING:
            # The reference does not survive a connection on which nothing comes.
            self.write(peer, Parcel(False, ParcelType.DSC_REQ, self._info.id, self.info))
            self.hang_up(peer)
            return
        target.stage, target.peer = Stage.ASKED, peer
        target.next_at = now + ANSWER_IN
        self._dialled[peer.number] = target
        if target.asks_sequence:
            self.write(peer, Parcel(False, ParcelType.SEQ_REQ, self._info.id))
        else:
            self.write(peer, Parcel(False, ParcelType.DSC_REQ, self._info.id, self.info))

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """Nobody answers there."""
        target = self.targets.get(address)
        if target is None or target.stage is not Stage.DIALLING:
            return
        if reason == "refused":
            target.said = Said.REFUSED
        self._failed(target, f"cannot be reached at {show(address)}: {reason}", now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """A connection has ended."""
        if not peer.dialled:
            self.callers.pop(peer.number, None)
            return
        target = self._dialled.pop(peer.number, None)
        if target is None or target.peer != peer:
            return
        if target.stage is Stage.READY:
            self._lose_line(target)
            target.closed(now, at_once=True)
        elif target.stage is Stage.ASKED and target.asks_sequence:
            # The reference hangs up on that question: no answer is one, too.
            target.asks_sequence = False
            target.closed(now, at_once=False)
            target.next_at = now + ASK_AGAIN
        else:
            self._failed(target, f"closed the connection: {reason}", now)

    def _lose_line(self, target: Target) -> None:
        member = target.member
        if member is not None and self.lines.get(member) is target:
            del self.lines[member]
            self._owner.line_lost(member)

    def _failed(self, target: Target, why: str, now: float) -> None:
        target.attempts += 1
        target.asks_sequence = False
        target.closed(now, at_once=False)
        known = self.neighbours.get(target.name) if target.name else None
        if known is None or known.info.host != target.address or known.member in self.lines:
            pass
        elif known.member is not None or target.said is Said.REFUSED:
            self._remove(known, why, now)
        if not target.configured and target.attempts >= HEARSAY_ATTEMPTS and not self._owner.keeps(target.address):
            del self.targets[target.address]

    def _remove(self, known: Neighbour, why: str, now: float) -> None:
        known.suspected = True
        self.neighbours.remove(known.info.name)
        self._owner.neighbour_went(known, why)
        member = known.member
        if member is not None:
            target = self.lines.get(member)
            if target is not None:
                peer = target.peer
                self._lose_line(target)
                if peer is not None:
                    self.hang_up(peer)
                target.closed(now, at_once=False)
            self._owner.suspected(member, now)

    # Time

    def tick(self, now: float) -> None:
        """A deadline has passed."""
        if now >= self._beat_at:
            self._beat_at = max(self._beat_at + BEAT, now + BEAT / 2)
            self.beat()
            self._sweep(now)
        for target in list(self.targets.values()):
            if target.next_at > now or target.stage is Stage.READY or self.mode in (Mode.SHUTDOWN, Mode.PANIC):
                continue
            if target.stage is Stage.IDLE:
                target.stage = Stage.DIALLING
                target.next_at = now + 4 * ANSWER_IN
                self._dials.append(Dial(target.address))
            elif target.stage is Stage.DIALLING:
                self._failed(target, "cannot be reached: no answer", now)
            else:
                if target.peer is not None:
                    self.hang_up(target.peer)
                self._failed(target, "does not answer", now)

    def beat(self) -> None:
        """Tell everybody that this node lives."""
        beat = Beat(self.mode, self._owner.term, self._owner.sequence)
        for target in self.lines.values():
            if target.peer is not None:
                self.write(target.peer, beat)

    def _sweep(self, now: float) -> None:
        if now - self._warned_since > WARN_AGAIN:
            self._warned.clear()
            self._warned_since = now
        for known in self.neighbours.silent(now):
            self._remove(known, f"was silent for {now - known.heard:.1f} s", now)
        for caller in list(self.callers.values()):
            if now - caller.heard > IDLE:
                self.counts["idle"] += 1
                self.hang_up(caller.peer)

    def leave(self) -> None:
        """Say goodbye."""
        self.mode = Mode.SHUTDOWN
        self.beat()

    def close(self, now: float) -> None:
        """Hang up everywhere."""
        for target in self.targets.values():
            peer = target.peer
            if peer is not None:
                self._lose_line(target)
                self.hang_up(peer)
                target.closed(now, at_once=True)
        for caller in list(self.callers.values()):
            self.hang_up(caller.peer)

    # Who calls

    def parcel_from_caller(self, parcel: Parcel, caller: Caller, now: float) -> None:
        """One of the document's parcels, on a connection that somebody dialled. Every one is answered: the reference
        does not survive a connection that is just closed."""
        caller.heard = now
        identity = parcel.identity
        if parcel.type is ParcelType.DSC_REQ and identity is not None:
            self._discovered(identity, caller, now)
        elif parcel.type in (ParcelType.SEQ_REQ, ParcelType.SEQ_RES) and parcel.body is None:
            answer = Parcel(True, ParcelType.SEQ_RES, self._info.id, self._owner.sequence)
            self.write(caller.peer, answer)
        else:
            self.counts["out-of-place"] += 1
            self._complain(caller.peer, f"a {parcel.type.value} of this kind is not expected here")

    def _unfit_name(self, info: NodeInfo) -> str | None:
        """Count a name that no node may have, and return what is wrong with it; ``None`` for one that fits."""
        try:
            check_text("name", info.name, MAX_NAME)
        except ConfigurationError as error:
            self.counts["bad-name"] += 1
            return str(error)
        return None

    def _complain(self, peer: Peer, text: str) -> None:
        self.write(peer, Parcel(True, ParcelType.PROTO_ERROR, self._info.id, None, text.encode()))

    def _discovered(self, info: NodeInfo, caller: Caller, now: float) -> None:
        unfit = self._unfit_name(info)
        if unfit is not None:
            self._warn(info.host, f"a node at {show(info.host)} was refused: {unfit}")
            self._complain(caller.peer, unfit)
            return
        ours = info.ours
        refused: tuple[Refusal, str] | None = None
        if ours is not None and ours.cluster != self._config.cluster_tag:
            refused = Refusal.WRONG_CLUSTER, f"this is cluster {self._config.cluster!r}, not yours"
        else:
            refused = self.neighbours.conflict(info, now)
        if refused is not None:
            self.counts[refused[0].name.lower().replace("_", "-")] += 1
            self._warn(info.host, f"{info.name!r} at {show(info.host)} was refused: {refused[1]}")
            self._complain(caller.peer, refused[1])
            return
        caller.info = info
        listed = [one if ours is not None else one._replace(ours=None) for one in self.neighbours.infos()]
        own = self.info if ours is not None else self.info._replace(ours=None)
        listed = [one for one in listed if one.name != info.name]
        if ours != self._info.ours:  # Otherwise it is this node, which has dialled itself.
            # With a secret, who speaks our own parcels counts once that is proven.
            known = ours is None or self._config.secret is None
            self._meet(info, caller.peer.address[0], now, known=known, trusted=False)
        # As the reference does, this node comes last; but where not all fit the body, who reads no more needs it most.
        listed = [*listed, own] if len(listed) < MOST_IN_BODY else [own, *listed]
        self.write(caller.peer, Parcel(True, ParcelType.DSC_RES, self._info.id, tuple(listed)))

    def _meet(self, info: NodeInfo, source: str, now: float, *, known: bool, trusted: bool) -> None:
        """Somebody said who it is, on a connection from ``source``.

        :param known: whether it counts from now on.
        :param trusted: whether it has shown that it knows the secret.
        """
        elsewhere = info.host[0] != source and not (_is_loopback(info.host[0]) and _is_loopback(source))
        if elsewhere and not trusted and info.host not in self.targets:
            # Who names somebody else's address could have that one flooded.
            self.counts["foreign-address"] += 1
            self._warn(info.host, f"{info.name!r} says that it listens at {show(info.host)}, but calls from {source}")
            return
        if known:
            self.meet(info, now, trusted=trusted)
        self.learn([info.host], now, soon=True, trusted=trusted)

    def meet(self, info: NodeInfo, now: float, *, trusted: bool) -> None:
        """Somebody is there.

        :param trusted: whether it has shown that it knows the secret, or the operator named its address.
        """
        displaced = self.neighbours.displaced(info) if trusted else None
        if displaced is not None:
            self._remove(displaced, f"has the id of {info.name!r}, which knows the secret", now)
        before = self.neighbours.get(info.name)
        former = None if before is None else before.member
        kept = self.neighbours.add(info, now, trusted=trusted)
        if kept is None:
            self.counts["too-many-neighbours"] += 1
            return
        if former is not None and former != kept.member:
            target = self.lines.get(former)
            if target is not None:
                if target.peer is not None:
                    self.hang_up(target.peer)
                self._lose_line(target)
                target.closed(now, at_once=True)
            self._owner.suspected(former, now)
        if before is None:
            self._owner.neighbour_came(kept)

    def learn(self, addresses: Iterable[Address], now: float, *, soon: bool = False, trusted: bool = False) -> None:
        """There may be somebody at these addresses.

        :param trusted: whether a node says so that has shown that it knows the secret.
        """
        for address in addresses:
            target = self.targets.get(address)
            if target is None:
                taken = [Place(one.address[0], one.trusted or one.configured) for one in self.targets.values()]
                if address != self._config.advertise and self._shares.has_room(taken, Place(address[0], trusted)):
                    self.targets[address] = Target(address, now, configured=False, trusted=trusted)
                continue
            target.trusted = target.trusted or trusted
            if soon and target.stage is Stage.IDLE and target.said is not Said.ITSELF:
                target.next_at = min(target.next_at, now)

    def hello_received(self, hello: Hello, caller: Caller, now: float) -> None:
        """Somebody who dialled speaks our own parcels."""
        caller.heard = now
        refused = self._refusal(hello, caller, now)
        if refused is not None:
            self.counts[refused.why.name.lower().replace("_", "-")] += 1
            self._warn((caller.peer.address[0], 0), f"{hello.name or 'a publisher'} was refused: {refused.text}")
            self.write(caller.peer, refused)
            self.hang_up(caller.peer)
            return
        welcome = Welcome(self.me.name, self.me.incarnation, self._owner.founding, self._rng.randbytes(16), b"")
        welcome = welcome._replace(proof=welcome_proof(self._config.secret, hello, welcome))
        caller.expected = dialler_proof(self._config.secret, hello, welcome)
        caller.member = Member(hello.name, hello.incarnation) if hello.name else None
        caller.founding = hello.founding
        caller.proven = False
        self.write(caller.peer, welcome)

    def _refusal(self, hello: Hello, caller: Caller, now: float) -> Refused | None:
        if hello.cluster != self._config.cluster:
            return Refused(Refusal.WRONG_CLUSTER, f"this is cluster {self._config.cluster!r}, not {hello.cluster!r}")
        if not hello.name:
            return None
        other = self._other_founding(hello.founding)
        if other is not None:
            return Refused(Refusal.OTHER_FOUNDING, other)
        if caller.info is None or caller.info.name != hello.name:
            return Refused(Refusal.NAME_TAKEN, f"{hello.name!r} did not ask for neighbours before it said hello")
        return None

    def _other_founding(self, founding: int) -> str | None:
        own = self._owner.founding
        if own and founding and own != founding:
            return (
                f"there are two clusters named {self._config.cluster!r}, founded apart ({own:016x}, {founding:016x});"
                " start the nodes of one of them anew, without what they remember"
            )
        return None

    def proof_received(self, proof: Proof, caller: Caller, now: float) -> None:
        """Somebody who dialled shows that it knows the secret."""
        caller.heard = now
        if caller.expected is None or not same_proof(caller.expected, proof.proof):
            self.counts["wrong-secret"] += 1
            self._warn(
                (caller.peer.address[0], 0), f"{show(caller.peer.address)} does not know the secret of this cluster"
            )
            self.write(caller.peer, Refused(Refusal.WRONG_SECRET, "that is not the secret of this cluster"))
            self.hang_up(caller.peer)
            return
        caller.proven = True
        if caller.info is not None and caller.member is not None:
            # Again: meanwhile somebody else of that name may have come.
            refused = self.neighbours.conflict(caller.info, now)
            if refused is not None:
                self.write(caller.peer, Refused(*refused))
                self.hang_up(caller.peer)
                return
            self._meet(caller.info, caller.peer.address[0], now, known=True, trusted=self._config.secret is not None)
            if caller.founding:
                self._owner.adopt(caller.founding)

    def heard(self, caller: Caller, now: float) -> None:
        """Somebody who is proven said something."""
        caller.heard = now
        member = caller.member
        if member is None:
            return
        known = self.neighbours.get(member.name)
        if known is not None and known.member == member:
            known.heard = now
            known.suspected = False
        elif known is None and caller.info is not None:
            self._meet(caller.info, caller.peer.address[0], now, known=True, trusted=self._config.secret is not None)

    def beat_received(self, beat: Beat, caller: Caller) -> None:
        """Somebody lives."""
        known = None if caller.member is None else self.neighbours.get(caller.member.name)
        if known is not None and known.member == caller.member:
            known.mode, known.sequence = beat.mode, beat.sequence

    # Who was called

    def answered(self, member: Member, now: float) -> None:
        """Somebody who was dialled said something."""
        known = self.neighbours.get(member.name)
        if known is not None and known.member == member:
            known.heard = now
            known.suspected = False

    def target_of(self, peer: Peer) -> Target | None:
        """Return what was dialled."""
        return self._dialled.get(peer.number)

    def parcel_from_target(self, parcel: Parcel, target: Target, now: float) -> None:
        """One of the document's parcels, on a connection that this node dialled."""
        sequence = parcel.body if parcel.type is ParcelType.SEQ_RES and isinstance(parcel.body, int) else None
        if target.stage is Stage.READY and sequence is not None:
            self._owner.sequence_answered(sequence, ours=True)
        elif target.stage is Stage.ASKED and target.asks_sequence:
            if sequence is not None:
                self._owner.sequence_answered(sequence, ours=False)
            self._dismiss(target, now)
        elif target.stage is not Stage.ASKED:
            self.counts["out-of-place"] += 1
        elif parcel.type is ParcelType.DSC_RES and parcel.neighbours is not None:
            self._introduced(parcel.id, parcel.neighbours, target, now)
        else:
            text = parcel.data.decode(errors="replace")[:200]
            self._no(target, text or f"it answers with a {parcel.type.value}", now)

    def _no(self, target: Target, text: str, now: float) -> None:
        """Somebody will not have to do with this node."""
        target.said = Said.NO
        target.asks_sequence = False
        self.counts["refused-by-others"] += 1
        self._warn(target.address, f"{show(target.address)} refuses this node: {text}")
        if target.peer is not None:
            self.hang_up(target.peer)
        target.closed(now, at_once=False)

    def _introduced(self, sender: int, infos: Sequence[NodeInfo], target: Target, now: float) -> None:
        other = next((one for one in reversed(infos) if one.id == sender), None)
        if other is None:
            # By the document nobody has to list itself.
            other = NodeInfo(sender, Mode.WRK, show(target.address), target.address)
        if other.ours is not None and other.ours == self._info.ours:
            target.said = Said.ITSELF
            target.configured = False
            if target.peer is not None:
                self.hang_up(target.peer)
            del self.targets[target.address]
            return
        if other.ours is not None and other.ours.cluster != self._config.cluster_tag:
            self._no(target, f"it is of another cluster than {self._config.cluster!r}", now)
            return
        unfit = self._unfit_name(other)
        if unfit is not None:
            self._no(target, unfit, now)
            return
        refused = self.neighbours.conflict(other, now)
        if refused is not None:
            self._no(target, refused[1], now)
            return
        target.attempts = 0
        target.name = other.name
        others = [one for one in infos if one is not other]
        addresses = [one.host for one in others]
        if other.ours is None:
            self.meet(other._replace(host=target.address), now, trusted=target.configured)
            self.learn(addresses, now)
            first = target.said is not Said.DOCUMENT
            target.said = Said.DOCUMENT
            self._dismiss(target, now)
            if first:
                target.asks_sequence, target.next_at = True, now
            return
        target.stage = Stage.GREETED
        target.next_at = now + ANSWER_IN
        hello = Hello(
            self._config.cluster, self.me.name, self.me.incarnation, self._owner.founding, self._rng.randbytes(16)
        )
        target.hello = hello
        target.member = Member(other.name, other.ours.incarnation)
        if self._config.secret is None:
            self.meet(other._replace(host=target.address), now, trusted=target.configured)
            self.learn(addresses, now)
        target.heard_of = others
        if target.peer is not None:
            self.write(target.peer, hello)

    def _dismiss(self, target: Target, now: float) -> None:
        """Somebody who speaks only the document has answered: one parcel a connection."""
        if target.peer is not None:
            self.hang_up(target.peer)
        target.asks_sequence = False
        target.closed(now, at_once=False)
        target.next_at = now + ASK_AGAIN

    def welcome_received(self, welcome: Welcome, target: Target, now: float) -> None:
        """Somebody who was dialled speaks our own parcels."""
        hello, peer = target.hello, target.peer
        if target.stage is not Stage.GREETED or hello is None or peer is None:
            self.counts["out-of-place"] += 1
            return
        member = Member(welcome.name, welcome.incarnation)
        if not same_proof(welcome_proof(self._config.secret, hello, welcome), welcome.proof):
            self._no(target, "it does not know the secret of this cluster", now)
            return
        other = self._other_founding(welcome.founding)
        if other is not None or member != target.member:
            self._no(target, other or f"it is {member} and said that it is {target.member}", now)
            return
        self.write(peer, Proof(dialler_proof(self._config.secret, hello, welcome)))
        known = self.lines.get(member)
        if known is not None and known is not target:
            self.hang_up(peer)
            target.closed(now, at_once=False)
            target.next_at = now + ALIAS_AGAIN
            return
        target.stage = Stage.READY
        target.said = Said.CLUSTER if welcome.founding else Said.ALONE
        target.wait = 0.25
        self.lines[member] = target
        info = NodeInfo(
            node_id(member.name),
            Mode.WRK if welcome.founding else Mode.DSC,
            member.name,
            target.address,
            Extension(VERSION, member.incarnation, self._config.cluster_tag),
        )
        before, trusted = self.neighbours.get(member.name), self._config.secret is not None
        if before is None or before.member != member:
            self.meet(info, now, trusted=trusted or target.configured)
        target.trusted = target.trusted or trusted
        # It lists nodes of ours only once they have proven themselves, and others as they come.
        for one in target.heard_of:
            self.learn([one.host], now, trusted=trusted and one.ours is not None)
        self.answered(member, now)
        if welcome.founding:
            self._owner.adopt(welcome.founding)
        self.write(peer, Beat(self.mode, self._owner.term, self._owner.sequence))
        self.write(peer, Parcel(False, ParcelType.SEQ_REQ, self._info.id))
        self._owner.line_ready(member, now)

    def refused(self, refused: Refused, target: Target, now: float) -> None:
        """Somebody who was dialled will not have to do with this node."""
        if target.stage is Stage.READY:
            self._lose_line(target)
        self._no(target, refused.text, now)

    def _warn(self, address: Address, text: str) -> None:
        """Say something of a host, but not again and again."""
        if (address, text) in self._warned:
            return
        if len(self._warned) >= MAX_TARGETS * self._config.max_neighbours:
            return
        self._warned.add((address, text))
        self._owner.warn(text)


def _is_loopback(host: str) -> bool:
    return host == "::1" or host.startswith("127.")
