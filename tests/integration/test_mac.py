"""A backbone with a secret, and clients that want MACs, in processes of their own on loopback."""

from __future__ import annotations

import socket
import time
from functools import partial
from pathlib import Path

import pytest
import pytest_twisted
from integration.running.backbone import RunningBackbone, StartBackbone, check_received, publish
from integration.running.programs import Start

from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.mac import MacKey, make_stream_id
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Flags, Keepalive, KeepaliveAck, Packet, Status
from fyrehose_twisted.fyrehose.wire.token import make_token

SECRET = b"known to the backbone and its clients"
KEY = MacKey(SECRET, make_stream_id("fyrehose://prices"))
COUNT = 2_000
LINES = b"".join(b"message %d\n" % number for number in range(COUNT))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def start_prices(start_backbone: StartBackbone) -> StartBackbone:
    """Start a backbone of the stream ``prices``."""
    return partial(start_backbone, "--name=prices", "--metrics=tcp:0")


def join(client: socket.socket, backbone: RunningBackbone, flags: int) -> Packet:
    """Send a KEEPALIVE as a client with these FLAGS, and return the answer."""
    client.settimeout(30)
    client.bind(("127.0.0.1", 0))
    own = client.getsockname()
    client.sendto(encode(Keepalive(own, flags, make_token(SECRET, own, flags, time.time()))), backbone.address)
    while isinstance(answer := decode(client.recv(65_536)), Status):
        pass
    return answer


def test_clients_of_the_documents_get_plain_packets_beside_clients_with_macs(
    start: Start, start_prices: StartBackbone, secret: Path
) -> None:
    backbone = start_prices(f"--secret-file={secret}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain, socket.socket(type=socket.SOCK_DGRAM) as wants:
        ack = join(plain, backbone, Flags.NOJOURNAL)
        assert isinstance(ack, KeepaliveAck)
        assert (ack.stream_id, ack.mac) == (b"", b"")
        ack = join(wants, backbone, Flags.NOJOURNAL | Flags.MAC)
        assert isinstance(ack, KeepaliveAck)
        assert KEY.is_valid_ack(ack)
        publisher = start("fyrehose", "pub", "-b", backbone.text, f"--secret-file={secret}", "--raw")
        assert publisher.finish(b"hello\n") == 0
        assert plain.recv(65_536) == b"\x01\x00\x05\x00\x00\x00\x00\x00\x01hello"
        assert decode(wants.recv(65_536)) == Deliver(1, b"hello", mac=KEY.deliver_mac(1, b"hello"))


@pytest_twisted.ensureDeferred
async def test_late_subscriber_gets_repairs_with_macs_from_another_client(
    start: Start, start_prices: StartBackbone, secret: Path
) -> None:
    backbone = start_prices(f"--secret-file={secret}", "--retransmit=0")
    options = ("-b", backbone.text, f"--secret-file={secret}", "--require-mac")
    first = start("fyrehose", "sub", *options)
    backbone.program.wait_for("joined")
    publish(start, backbone, LINES, f"--secret-file={secret}", "--require-mac")
    check_received(first, LINES)
    assert (await backbone.metrics())["fyrehose_backbone_mac_clients"] >= 1
    late = start("fyrehose", "sub", *options, "--from=oldest")
    check_received(late, LINES)
    assert (await backbone.metrics())["fyrehose_backbone_forwards_total"] > 0


def test_client_that_requires_macs_connects_to_no_backbone_without_them(
    start: Start, start_prices: StartBackbone, secret: Path
) -> None:
    backbone = start_prices()
    options = ("-b", backbone.text, f"--secret-file={secret}", "--connect-timeout=2")
    pinger = start("fyrehose", "ping", "--count=1", *options, "--require-mac")
    assert pinger.finish() == 1
    assert f"the answers of backbone {backbone.text} have no MAC: it has no secret" in pinger.err
    assert start("fyrehose", "ping", "--count=1", *options).finish() == 0
    alone = start("fyrehose", "ping", "--require-mac")
    assert alone.finish() == 1
    assert "--require-mac requires --secret-file FILE" in alone.err
