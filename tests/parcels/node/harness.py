"""Peers that connect to a node, and views of its outputs."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from parcels.harness import Host, Net

from fyrehose_twisted.parcels.events import EventsDelivered, ModeChanged, OperatorWarning
from fyrehose_twisted.parcels.wire.auth import dialler_proof
from fyrehose_twisted.parcels.wire.messages import (
    Extension,
    Hello,
    Message,
    Mode,
    NodeInfo,
    Parcel,
    ParcelType,
    Proof,
    Welcome,
    node_id,
)

TAG = crc32(b"default")
SECRET = b"0123456789abcdef"
STRANGE = "10.0.1.1"


def info(name: str, host: str = "10.0.0.99", port: int = 7_878, incarnation: int | None = 99) -> NodeInfo:
    ours = None if incarnation is None else Extension(1, incarnation, TAG)
    return NodeInfo(node_id(name), Mode.DSC, name, (host, port), ours)


def answers_as(about: NodeInfo) -> Any:
    """Return a reference peer's callback that answers discovery requests."""

    def answer(end: Any, message: Message) -> None:
        if isinstance(message, Parcel) and message.type is ParcelType.DSC_REQ:
            end.send(Parcel(True, ParcelType.DSC_RES, about.id, (about,)))

    return answer


def ask(about: NodeInfo) -> Parcel:
    return Parcel(False, ParcelType.DSC_REQ, about.id, about)


def join(net: Net, host: Host, name: str, cluster_id: int | None = None, secret: bytes | None = None) -> Any:
    """Connect to a node as another node of its cluster."""
    end = net.connect(host)
    hello = Hello("default", name, 99, host.node.cluster_id if cluster_id is None else cluster_id, bytes(16))
    end.send(ask(info(name)), hello)
    net.run(0.01)
    welcome = next(one for one in end.take() if isinstance(one, Welcome))
    end.send(Proof(dialler_proof(secret, hello, welcome)))
    net.run(0.01)
    return end


def connect(net: Net, host: Any) -> Any:
    """Connect to a node as an external publisher."""
    end = net.connect(host)
    end.send(Hello("default", "", 0, 0, bytes(16)))
    net.run(0.01)
    end.send(Proof(b""))
    net.run(0.01)
    end.take()
    return end


def delivered(host: Any) -> list[bytes]:
    return [event.data for one in host.of(EventsDelivered) for event in one.events]


def mode(host: Any) -> Mode:
    return host.node.mode


def warnings(host: Any) -> list[str]:
    return [one.text for one in host.of(OperatorWarning)]


def counter(host: Any, name: str) -> int:
    return host.node.state(host.net.now).counters.get(name, 0)


def members(host: Any) -> list[str]:
    return [one.name for one in host.node.state(host.net.now).members]


def modes(host: Any) -> list[Mode]:
    return [one.mode for one in host.of(ModeChanged)]
