"""Connection that carries parcels, without a node."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Mode, NodeInfo, Parcel, ParcelType, node_id

ME = NodeInfo(node_id("a"), Mode.DSC, "a", ("127.0.0.1", 7878))
ASKED = Parcel(False, ParcelType.DSC_REQ, ME.id, ME)
ANSWERED = Parcel(True, ParcelType.DSC_RES, ME.id, (ME,))


class Recording(ParcelProtocol):
    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Any] = []

    def connection_ready(self) -> None:
        self.noted.append("ready")
        self.send([ASKED])

    def parcels_received(self, messages: Any) -> None:
        self.noted.append(list(messages))
        super().parcels_received(messages)

    def connection_ended(self, reason: str) -> None:
        self.noted.append(reason)


class Owner:
    """Connection owner that records the messages it receives."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def connection_opened(self, link: Any) -> None:
        pass

    def connection_received(self, link: Any, messages: Any) -> None:
        self.received += messages

    def connection_pressure_changed(self, link: Any) -> None:
        pass

    def connection_closed(self, link: Any, reason: str) -> None:
        pass

    def connection_released(self, link: Any) -> None:
        pass


def connected() -> tuple[Recording, StringTransport]:
    protocol, transport = Recording(), StringTransport()
    protocol.makeConnection(transport)
    return protocol, transport


def test_received_parcels_are_reported_in_order() -> None:
    protocol, transport = connected()
    codec = ParcelCodec()
    assert transport.value() == codec.encode(ASKED)
    data = codec.encode(ANSWERED) + codec.encode(ASKED)
    protocol.dataReceived(data[:10])
    protocol.dataReceived(data[10:])
    protocol.connectionLost(Failure(ConnectionDone()))
    assert protocol.noted == ["ready", [ANSWERED, ASKED], "closed"]


def test_malformed_bytes_close_the_connection_after_the_parcels_before_them() -> None:
    protocol, transport = connected()
    protocol.dataReceived(ParcelCodec().encode(ASKED) + b"\x03abc")
    assert protocol.noted[:2] == ["ready", [ASKED]]
    assert protocol.noted[2].startswith("malformed: ")
    assert transport.disconnected
    protocol.dataReceived(ParcelCodec().encode(ASKED))
    protocol.connectionLost(Failure(ConnectionDone()))
    assert len(protocol.noted) == 3


def test_close_of_the_owner_is_not_reported() -> None:
    protocol, transport = connected()
    protocol.close()
    assert transport.disconnecting
    protocol.connectionLost(Failure(ConnectionDone()))
    assert protocol.noted == ["ready"]


def test_messages_reach_the_owner_by_default() -> None:
    owner = Owner()
    protocol = Recording()
    protocol.owner, protocol.peer = owner, Peer(("127.0.0.1", 1), 1, False)
    protocol.makeConnection(StringTransport())
    protocol.dataReceived(ParcelCodec().encode(ASKED))
    assert owner.received == [ASKED]
