"""Admission of clients by secret, network and limits."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_twisted
from integration.running.backbone import MakePeer, StartBackbone
from integration.running.programs import Start

SECRET = "correct horse battery staple"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


@pytest_twisted.ensureDeferred
async def test_clients_without_the_secret_are_refused(
    start: Start, start_backbone: StartBackbone, peer: MakePeer, secret_file: Path
) -> None:
    backbone = start_backbone("--secret-file", secret_file, "--metrics", "tcp:0")
    to = ("-b", backbone.text)
    stranger = peer(backbone)
    stranger.refused()
    stranger.publish(b"not to be numbered")
    without = start("fyrehose", "sub", *to, "--connect-timeout", 0.3)
    wrong_file = secret_file.with_name("wrong")
    wrong_file.write_text("another secret, just as long")
    wrong_file.chmod(0o600)
    wrong = start("fyrehose", "sub", *to, "--connect-timeout", 0.3, "--secret-file", wrong_file)
    subscriber = start("fyrehose", "sub", *to, "--count", 1, "--secret-file", secret_file)
    backbone.wait_for_clients(1)
    publisher = start("fyrehose", "pub", *to, "--secret-file", secret_file)
    assert publisher.finish(b"numbered") == 0
    assert subscriber.finish() == 0
    assert subscriber.out == "numbered\n"
    assert without.finish() == wrong.finish() == 1
    assert without.err == (
        f"fyrehose: backbone {backbone.text} did not answer within 0.3 s;"
        " is it running, does it need a secret, and does it admit this address?\n"
    )
    assert wrong.err == (
        f"fyrehose: backbone {backbone.text} did not answer within 0.3 s;"
        " is it running, is the secret the same there, and does it admit this address?\n"
    )
    dropped = await backbone.dropped()
    assert dropped["push_not_allowed"] == 1
    assert dropped["foreign_address"] >= 2, "the stranger's KEEPALIVE and those of the command without a secret"
    assert dropped["token"] >= 1
    with pytest.raises(TimeoutError):
        stranger.receive(0.01)
    backbone.stop()
    programs = [backbone.program, without, wrong, subscriber, publisher]
    for program in programs:
        assert SECRET not in program.out
        assert SECRET not in program.err
        assert SECRET not in " ".join(program.process.args)


@pytest_twisted.ensureDeferred
async def test_clients_outside_the_allowed_networks_are_refused(start_backbone: StartBackbone, peer: MakePeer) -> None:
    options = (
        "--interface",
        "0.0.0.0",
        "--allow",
        "127.0.0.0/30",
        "--allow-push",
        "127.0.0.2/32",
        "--metrics",
        "tcp:0",
    )
    backbone = start_backbone(*options)
    subscriber, publisher = peer(backbone), peer(backbone, "127.0.0.2")
    stranger = peer(backbone, "127.0.0.9")
    subscriber.keepalive()
    stranger.refused()
    stranger.publish(b"from a stranger")
    subscriber.publish(b"from a subscriber")
    subscriber.keepalive()
    publisher.publish(b"from a publisher")
    assert subscriber.delivered(1) == [(1, b"from a publisher")]
    assert await backbone.dropped() == {"not_allowed": 1, "push_not_allowed": 2}
    with pytest.raises(TimeoutError):
        stranger.receive(0.01)


@pytest_twisted.ensureDeferred
async def test_single_sender_does_not_fill_the_client_table(start_backbone: StartBackbone, peer: MakePeer) -> None:
    backbone = start_backbone("--metrics", "tcp:0")
    greedy, next_client, elsewhere = peer(backbone), peer(backbone), peer(backbone, "127.0.0.2")
    for port in range(1, 1_101):  # Ports without a backbone.
        greedy.refused(address=("0.0.0.0", port))
    for one in (next_client, elsewhere):
        one.keepalive()
    assert (await backbone.metrics())["fyrehose_backbone_clients"] == 18
    assert await backbone.dropped() == {"host_full": 1_084}


@pytest_twisted.ensureDeferred
async def test_clients_per_host_are_limited(start_backbone: StartBackbone, peer: MakePeer) -> None:
    backbone = start_backbone("--max-per-host", 3, "--metrics", "tcp:0")
    greedy = [peer(backbone) for _ in range(4)]
    for one in greedy[:3]:
        one.keepalive()
    greedy[3].refused()
    peer(backbone, "127.0.0.2").keepalive()
    greedy[0].keepalive()
    assert await backbone.dropped() == {"host_full": 1}


@pytest.mark.parametrize("interface", ["127.0.0.1", "0.0.0.0"])
@pytest_twisted.ensureDeferred
async def test_backbone_is_not_a_client_of_itself(
    interface: str, start_backbone: StartBackbone, peer: MakePeer
) -> None:
    backbone = start_backbone(
        "--interface", interface, "--open", "--trust-addresses", "--metrics", "tcp:0", "--settle-time", 0
    )
    one = peer(backbone)
    one.refused(address=backbone.address)
    one.refused(address=("0.0.0.0", backbone.address[1]))
    one.keepalive()
    one.publish(b"data")
    assert one.delivered(1) == [(1, b"data")]
    assert await backbone.dropped() == {"own_address": 2}


@pytest_twisted.ensureDeferred
async def test_number_of_clients_is_limited_but_publishing_is_not(
    start_backbone: StartBackbone, peer: MakePeer
) -> None:
    backbone = start_backbone("--max-clients", 2, "--metrics", "tcp:0")
    first, second, third = peer(backbone), peer(backbone), peer(backbone)
    first.keepalive()
    second.keepalive()
    third.refused()
    third.publish(b"1")
    assert first.delivered(1) == second.delivered(1) == [(1, b"1")]
    first.keepalive()
    second.keepalive()  # No client expires, however long the test took.
    metrics = await backbone.metrics()
    assert metrics["fyrehose_backbone_clients"] == 2
    assert await backbone.dropped() == {"table_full": 1}
    with pytest.raises(TimeoutError):
        third.receive(0.01)
