"""Agreement of a client with its backbone on MACs, and the check of what the client receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from fyrehose_twisted.datagrams import DatagramRun
from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.fyrehose.config import ClientConfig, MacPolicy
from fyrehose_twisted.fyrehose.events import MacsAgreed, MacsNotOffered
from fyrehose_twisted.fyrehose.node.base import NodeOutput
from fyrehose_twisted.fyrehose.wire.mac import MacKey
from fyrehose_twisted.fyrehose.wire.packets import WITH_MAC, Deliver, KeepaliveAck, Packet, PacketType
from fyrehose_twisted.fyrehose.wire.run_codec import split_delivers

_PLAIN_TYPE, _WITH_MAC_TYPE = int(PacketType.DELIVER), int(PacketType.DELIVER | WITH_MAC)


class MacState(Enum):
    """What a client knows of the MACs of its backbone."""

    UNUSED = "the client wants no MACs"
    UNKNOWN = "no backbone has answered yet"
    PLAIN = "the backbone offers no MACs"
    AGREED = "every DELIVER must have a MAC"


class MacAgreement:
    """Agreement of one client on MACs.

    Until the first KEEPALIVE-ACK, the client accepts no DELIVER. An ACK without a MAC lets it accept DELIVERs without,
    unless it requires them. An ACK with a valid MAC makes it accept only DELIVERs and ACKs with MACs, for good, and no
    other stream of that backbone: what could undo that could be forged.

    :param leader: returns the address of the backbone that the client follows.
    :param is_backbone: returns whether an address is one of its backbones.
    :param is_recent_token: returns whether a token is one of a recent KEEPALIVE of this client.
    :param drop: drops a packet: reason, source, detail and time.
    :ivar state: what is agreed.
    """

    def __init__(
        self,
        config: ClientConfig,
        output: NodeOutput,
        leader: Callable[[], Address],
        is_backbone: Callable[[Address], bool],
        is_recent_token: Callable[[bytes], bool],
        drop: Callable[[str, Address, str, float], None],
    ) -> None:
        self._secret = config.secret
        self._is_required = config.mac is MacPolicy.REQUIRE
        self._leader = leader
        self._is_backbone = is_backbone
        self._output = output
        self._is_recent_token = is_recent_token
        self._drop = drop
        self._keys: dict[Address, MacKey] = {}
        self.state = MacState.UNKNOWN if config.wants_macs else MacState.UNUSED

    @property
    def accepts_plain(self) -> bool:
        """Whether a DELIVER needs no MAC."""
        return self.state is MacState.UNUSED or self.state is MacState.PLAIN

    def admits(self, packet: Packet, peer: Address, now: float) -> bool:
        """Return whether to handle a packet; drop it if not."""
        match packet:
            case Deliver():
                reason = self._refusal_reason(packet, peer)
                what = f"DELIVER {packet.sequence}"
            case KeepaliveAck() if self.state is not MacState.UNUSED:
                reason, what = self._ack_received(packet, peer), "KEEPALIVE-ACK"
            case _:
                return True
        if reason is None:
            return True
        self._drop(reason, peer, f"{what} {'without a' if reason == 'mac_missing' else 'with a wrong'} MAC", now)
        return False

    def split_run(self, buffer: bytearray, run: DatagramRun) -> list[tuple[int, list[bytes]]] | None:
        """Return the DATA of a run of DELIVERs that are all admitted, as
        :func:`~fyrehose_twisted.fyrehose.wire.run_codec.split_delivers` does.

        :return: ``None`` for anything else, which has to pass :meth:`admits` one by one.
        """
        kind = buffer[run.start] if run.stop > run.start else 0
        if kind == _WITH_MAC_TYPE:
            key = self._key_of(run.peer)
            return None if key is None else key.split_run(buffer, run)
        return split_delivers(buffer, run) if kind == _PLAIN_TYPE and self.accepts_plain else None

    def add_macs(self, datagrams: Iterable[Datagram | Burst]) -> list[Datagram | Burst]:
        """Return DELIVERs with MACs for another client of the backbone: none before the client can make them."""
        key = self._key_of(self._leader())
        return [] if key is None else key.add_macs(datagrams)

    def _key_of(self, peer: Address) -> MacKey | None:
        """Return the key of the stream of ``peer``. Other clients repair under that of the backbone."""
        return self._keys.get(peer) or self._keys.get(self._leader())

    def _refusal_reason(self, deliver: Deliver, peer: Address) -> str | None:
        if not deliver.mac:
            return None if self.accepts_plain else "mac_missing"
        key = self._key_of(peer)
        return None if key is not None and key.is_valid(deliver) else "mac_wrong"

    def _ack_received(self, ack: KeepaliveAck, peer: Address) -> str | None:
        """Agree, or not, upon an answer to a recent KEEPALIVE. Return the reason to drop it."""
        is_answer = self._is_backbone(peer) and self._is_recent_token(ack.token)
        if not ack.mac:
            if self.state is MacState.AGREED or self._is_required:
                return "mac_missing"
            if is_answer and self.state is MacState.UNKNOWN:
                self.state = MacState.PLAIN
                self._output.events.append(MacsNotOffered(peer))
            return None
        key = self._keys.get(peer)
        if key is None and self._secret is not None:
            key = MacKey(self._secret, ack.stream_id)
        if key is None or not key.is_valid_ack(ack):
            return "mac_wrong"
        if is_answer:
            self._keys = {one: known for one, known in self._keys.items() if self._is_backbone(one)}
            self._keys[peer] = key
            if self.state is not MacState.AGREED:
                self.state = MacState.AGREED
                self._output.events.append(MacsAgreed(peer))
        return None
