"""Parcels node processes: acknowledged events survive, in one order, all faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from integration.running.cluster import RunningNode, StartCluster
from integration.running.programs import AwaitTrue, Start

NAMES = "east", "north", "west"
DEADLINE = 120.0
"""Seconds after which an awaited event fails a test; reached only on failure."""


def lines(first: int, last: int) -> bytes:
    """Return events to publish, one per line."""
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


def urls(nodes: Iterable[RunningNode]) -> list[object]:
    """Return options that name nodes for HTTP commands."""
    return [part for node in nodes for part in ("--http", node.url)]


def publish(start: Start, node: RunningNode, data: bytes, *options: object) -> list[int]:
    """Publish lines over TCP; return their sequence numbers."""
    publisher = start("fyrehose", "parcels", "publish", "--node", node.address, "--numbers", *options)
    assert publisher.finish(data) == 0, publisher
    return [int(line) for line in publisher.out.splitlines()]


@pytest.mark.extended
def test_order_is_unique_despite_crashes_of_one_node_at_a_time(start: Start, start_cluster: StartCluster) -> None:
    cluster = start_cluster(*NAMES)
    leader = cluster.leader
    first, second = (node for node in cluster.values() if node is not leader)
    follower = start(
        "fyrehose", "parcels", "follow", *urls([first, second]), "--from", 1, "--count", 308, "--format", "json"
    )
    assert publish(start, second, lines(1, 100), "--name", "p") == list(range(1, 101))
    assert [node.publish(node.name.encode()) for node in cluster.values()] == [101, 102, 103]
    follower.wait_for(r'"sequence": 103, ')

    first.kill()
    assert publish(start, leader, lines(101, 200), "--name", "p") == list(range(104, 204))
    follower.wait_for(r'"sequence": 203, ')
    first.start()
    cluster.wait_to_work()

    leader = cluster.leader
    leader.kill()
    one, other = (node for node in cluster.values() if node is not leader)
    assert publish(start, one, lines(201, 300), "--name", "p") == list(range(204, 304))
    assert [node.publish(node.name.encode()) for node in (one, other)] == [304, 305]
    leader.start()
    cluster.wait_to_work()
    assert [node.publish(node.name.encode()) for node in cluster.values()] == [306, 307, 308]

    assert follower.finish() == 0, follower
    assert follower.err == ""
    found = [json.loads(line) for line in follower.out.splitlines()]
    printed = [(one["sequence"], one["publisher"], one["data"]) for one in found]
    assert [number for number, _, _ in printed] == list(range(1, 309))
    assert [data for _, publisher, data in printed if publisher == "p"] == lines(1, 300).decode().split()
    oldest = max(node.state()["oldest"] for node in cluster.values())
    assert cluster.events(oldest, 308) == printed[oldest - 1 :]


@pytest.mark.soak(seconds=60)
def test_minority_acknowledges_nothing_until_the_operator_reforms_the_cluster(
    start: Start, start_cluster: StartCluster
) -> None:
    cluster = start_cluster(*NAMES)
    survivor = cluster.leader
    one, other = cluster.followers
    assert publish(start, one, lines(1, 50)) == list(range(1, 51))
    survivor.wait_for_event(50)
    before = survivor.events(1, 50)
    one.kill()
    other.kill()
    survivor.wait_for(lambda state: state["mode"] == "Err")
    status, body = survivor.ask("/events", b"nobody else would know of this")
    assert (status, json.loads(body)["error"]) == (503, "no-quorum")
    assert survivor.ask("/health")[0] == 503
    publisher = start("fyrehose", "parcels", "publish", "-n", survivor.address, "--timeout", 10)
    assert publisher.finish(b"nor of this\n") == 1
    assert "1 of 1 event not ordered" in publisher.err
    assert "line 1: no-quorum: no number within 10 s" in publisher.err

    # Both return without state, so they cannot know whether other nodes had acknowledged events.
    one.start()
    other.start()
    state = survivor.wait_for(lambda state: {node["name"] for node in state["neighbours"]} >= {one.name, other.name})
    assert (state["mode"], state["sequence"]) == ("Err", 50)
    assert one.state()["mode"] != "Wrk"
    shown = start("fyrehose", "parcels", "cluster", "--http", survivor.url)
    assert shown.finish() == 0
    assert shown.out.startswith(f"cluster default, seen from {survivor.name} (")
    assert "mode Err: " in shown.out
    assert "last event 50, held 1 to 50" in shown.out

    command = "fyrehose", "parcels", "reform", "--http", survivor.url, "--cluster"
    asked = start(*command, "default")
    assert asked.finish() == 1
    assert "It would continue alone after event 50" in asked.err
    assert asked.err.endswith("fyrehose: nothing was done\n")
    wrong = start(*command, "another", "--yes")
    assert wrong.finish() == 1
    assert "409 wrong-cluster" in wrong.err
    assert survivor.state()["mode"] == "Err"
    done = start(*command, "default", "--yes")
    assert done.finish() == 0, done
    assert done.out == f"node {survivor.name} continues alone after event 50, mode Wrk\n"
    # Members of the old cluster do not join the new one before they lose their state.
    for node in (one, other):
        node.kill()
        node.start()
    cluster.wait_to_work()
    assert survivor.events(1, 50) == before
    number = other.publish(b"and on it goes")
    assert number > 50
    survivor.wait_for_event(number)
    assert survivor.events(number, number)[0][2] == "and on it goes"
    again = start(*command, "default", "--yes")
    assert again.finish() == 1
    assert "409 working" in again.err


@pytest.mark.soak(seconds=60)
def test_suspended_leader_catches_up(start: Start, start_cluster: StartCluster) -> None:
    cluster = start_cluster(*NAMES)
    leader = cluster.leader
    one, other = cluster.followers
    assert publish(start, leader, lines(1, 20)) == list(range(1, 21))
    # Meanwhile a client requests something that requires a quorum to decide.
    leader.program.signal(signal.SIGSTOP)
    late = start("fyrehose", "parcels", "publish", "-n", leader.address, "-n", one.address, "--numbers")
    assert late.finish(b"late\n") == 0, late
    assert publish(start, other, lines(22, 40)) == list(range(22, 41))
    for node in (one, other):
        # The other members consider it dead.
        node.wait_for(lambda state: leader.name not in {one["name"] for one in state["neighbours"]})
    leader.program.signal(signal.SIGCONT)
    cluster.wait_to_work()
    assert cluster.leader is not leader
    assert leader.publish(b"41") == 41
    assert [data for _, _, data in cluster.events(1, 41)] == [*map(str, range(1, 21)), "late", *map(str, range(22, 42))]


@pytest.mark.soak(seconds=60)
def test_journals_survive_a_kill_of_all_nodes_and_agree(
    start: Start, start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(*NAMES, options=lambda node: ["--journal", node.name, "--retention", "1GB"])
    assert publish(start, cluster.followers[0], lines(1, 500), "--name", "p") == list(range(1, 501))
    for node in cluster.values():
        node.kill()
    for node in cluster.values():
        node.start()
    cluster.wait_to_work()
    assert [data for _, _, data in cluster.events(1, 500)] == lines(1, 500).decode().split()
    assert publish(start, cluster["west"], lines(501, 600), "--name", "p") == list(range(501, 601))
    cluster.events(1, 600)
    for node in cluster.values():
        node.stop()

    journals = [tmp_path / name / "parcels-default" for name in NAMES]
    for journal in journals:
        checked = start("fyrehose", "journal", "check", journal)
        assert checked.finish() == 0, checked
        assert "; nothing is damaged" in checked.out
        printed = start("fyrehose", "journal", "cat", journal)
        assert printed.finish() == 0, printed
        assert printed.outputs[1] == lines(1, 600)
    command = [
        Path(sys.executable).parent / "fyrehose-pipeline",
        "verify",
        *journals,
        "--master",
        "local[2]",
        "--quiet",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("All is well: 600 of 600 numbers are there, and no payloads differ.\n")


@pytest.mark.extended
def test_nodes_and_publishers_without_the_secret_are_refused(
    start: Start, start_cluster: StartCluster, make_nodes: StartCluster, tmp_path: Path
) -> None:
    secrets = {"right": "right horse battery staple", "wrong": "wrong horse battery staple"}
    for name, secret in secrets.items():
        (tmp_path / name).write_text(secret)
        (tmp_path / name).chmod(0o600)
    known = {"east": "right", "north": "right", "wrong": "wrong"}

    def options(node: RunningNode) -> list[object]:
        return ["--secret-file", known[node.name]] if node.name in known else []

    def to_east(node: RunningNode) -> list[object]:
        return ["--peer", nodes["east"].address, *options(node)]

    nodes = start_cluster("east", "north", options=options)
    strangers = [make_nodes(name, options=to_east)[name].start() for name in ("wrong", "none")]
    for stranger in strangers:
        stranger.program.wait_for("refuses this node: it does not know the secret of this cluster")
    # The name of a member, from another address and with the secret.
    impostor = make_nodes("north", options=to_east)["north"].start()
    impostor.program.wait_for("refuses this node: .*north")
    for wrong in (["--secret-file", tmp_path / "wrong"], []):
        publisher = start("fyrehose", "parcels", "publish", "-n", nodes["east"].address, *wrong)
        assert publisher.finish(b"x\n") == 1
        assert "line 1: wrong-secret: " in publisher.err
        assert publisher.err.rstrip().endswith("it will not be ordered")
    right = "--secret-file", tmp_path / "right"
    assert publish(start, nodes["north"], b"1\n", *right) == [1]
    publisher = start("fyrehose", "parcels", "publish", "-n", nodes["east"].address, "-c", "other", *right)
    assert publisher.finish(b"x\n") == 1
    assert "line 1: wrong-cluster: " in publisher.err
    for stranger in (*strangers, impostor):
        assert stranger.state()["sequence"] == 0
    assert nodes["east"].wait_to_work("east", "north")["sequence"] == 1


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Return a directory with a self-signed certificate for 127.0.0.1 and its key."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "trusted").mkdir()
    (tmp_path / "trusted" / "cert.pem").write_bytes(made.public_bytes(encoding))
    (tmp_path / "key.pem").write_bytes(private)
    return tmp_path


def test_nodes_communicate_and_serve_http_over_tls(start: Start, make_nodes: StartCluster, certificates: Path) -> None:
    import ssl

    served = "privateKey=key.pem:certKey=trusted/cert.pem"
    dial = f"tls:{{host}}:{{port}}:trustRoots={certificates / 'trusted'}"

    def options(node: RunningNode) -> list[object]:
        listen, http = f"ssl:{node.port}:{served}", f"ssl:{node.http_port}:{served}"
        return ["--listen", listen, "--http", http, "--dial", dial]

    nodes = make_nodes("east", "north", options=options)
    for node in nodes.values():
        node.url = node.url.replace("http:", "https:")
        node.context = ssl.create_default_context(cafile=certificates / "trusted" / "cert.pem")
        node.start()
    nodes.wait_to_work()
    assert publish(start, nodes["north"], b"1\n", "--dial", dial) == [1]
    assert nodes["north"].publish(b"2") == 2
    assert [data for _, _, data in nodes.events(1, 2)] == ["1", "2"]
    # A peer without TLS, or with another trust root, exchanges no message.
    for options_of in ([], ["--dial", "tls:{host}:{port}"]):
        publisher = start("fyrehose", "parcels", "publish", "-n", nodes["east"].address, "--timeout", 1, *options_of)
        assert publisher.finish(b"x\n") == 1, publisher
        assert "line 1: not-connected: " in publisher.err
    assert nodes["east"].state()["sequence"] == 2


@pytest.mark.extended
def test_follow_ends_with_a_closed_output_and_waits_for_a_slow_one(start: Start, start_cluster: StartCluster) -> None:
    (node,) = start_cluster("east").values()
    publish(start, node, b"".join(b"%07d%s\n" % (number, bytes(8_000)) for number in range(1, 401)))
    reading, writing = os.pipe()
    follower = start("fyrehose", "parcels", "follow", *urls([node]), "--from", 1, stdout=writing)
    os.close(writing)
    with open(reading, "rb", buffering=0) as pipe:
        assert pipe.read(7) == b"0000001"
    node.publish(b"wake up")
    assert follower.finish() == 0, follower
    assert follower.err == ""

    reading, writing = os.pipe()
    follower = start("fyrehose", "parcels", "follow", *urls([node]), "--from", 1, "--count", 400, stdout=writing)
    os.close(writing)
    patience = threading.Timer(DEADLINE, follower.process.kill)  # Otherwise this would wait forever.
    patience.start()
    with open(reading, "rb") as pipe:
        found = pipe.read()
    patience.cancel()
    assert follower.finish() == 0, follower
    assert [line[:7] for line in found.splitlines()] == [b"%07d" % number for number in range(1, 401)]
    assert len(found) == 400 * 8_008


@pytest.mark.extended
def test_publish_reports_a_dead_or_hanging_node(
    start: Start, start_cluster: StartCluster, await_true: AwaitTrue
) -> None:
    (node,) = start_cluster("east", options=lambda node: ["--journal", "kept"]).values()
    publisher = start("fyrehose", "parcels", "publish", "-n", node.address, "--numbers", "--timeout", DEADLINE)
    publisher.write(b"a\n")
    publisher.wait_for("1\n")
    node.kill()
    publisher.write(b"b\n")
    refused = f"fyrehose: {node.address}: refused, retrying; start it, or pass another --node\n"
    works = f"fyrehose: {node.address} accepts events\n"
    await_true(lambda: refused in publisher.err, lambda: str(publisher))
    node.start()
    publisher.wait_for("2\n")
    await_true(lambda: works in publisher.err, lambda: str(publisher))
    node.program.signal(signal.SIGSTOP)
    publisher.write(b"c\n")
    hangs = f"fyrehose: {node.address}: no answer, retrying; find out why it hangs, or pass another --node\n"
    await_true(lambda: hangs in publisher.err, lambda: str(publisher))
    node.program.signal(signal.SIGCONT)
    publisher.wait_for("3\n")
    assert publisher.finish() == 0, publisher
    assert [publisher.err.count(text) for text in (refused, works, hangs)] == [1, 2, 1]


@pytest.mark.parametrize("buffered", [True, False])
def test_commands_with_a_closed_output_end_without_a_message(
    start: Start, start_cluster: StartCluster, buffered: bool
) -> None:
    (node,) = start_cluster("east").values()
    env = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    node.publish(b"one")
    for arguments in (["cluster"], ["cluster", "--json"], ["follow", "--from", 1]):
        reading, writing = os.pipe()
        os.close(reading)
        command = start("fyrehose", "parcels", *arguments, *urls([node]), stdout=writing, env=env)
        os.close(writing)
        assert (command.finish(), command.err) == (0, ""), arguments


@pytest.mark.extended
def test_key_stays_bound_to_one_body_at_all_nodes_and_after_restarts(start_cluster: StartCluster) -> None:
    cluster = start_cluster(*NAMES, options=lambda node: ["--journal", node.name])

    def pay(node: RunningNode, body: bytes) -> tuple[int, Any]:
        status, answer = node.ask("/events", body, Publisher="shop", Idempotency_Key="order-4711")
        content = json.loads(answer)
        return status, content.get("sequence") or content["error"]

    assert pay(cluster["east"], b"pay 10") == (201, 1)
    for _ in range(2):
        for node in cluster.values():
            assert pay(node, b"pay 99") == (422, "key-reused")
            assert pay(node, b"pay 10") == (201, 1)
        for node in cluster.values():
            node.kill()
        for node in cluster.values():
            node.start()
        cluster.wait_to_work()
    assert [data for _, _, data in cluster.events(1, 1)] == ["pay 10"]
    assert {node.state()["sequence"] for node in cluster.values()} == {1}


def test_sigint_ends_follow_and_publish_cleanly(start: Start, start_cluster: StartCluster) -> None:
    (node,) = start_cluster("east").values()
    follower = start("fyrehose", "parcels", "follow", *urls([node]), "--from", 1)
    publisher = start("fyrehose", "parcels", "publish", "-n", node.address, "--numbers")
    publisher.write(b"a\n")
    publisher.wait_for("1\n")
    follower.wait_for("a\n")
    publisher.signal(signal.SIGINT).process.wait(DEADLINE)
    assert publisher.finish() == 1
    assert publisher.err.endswith("1 event, numbers 1 to 1\nfyrehose: 0 of 1 event not ordered: interrupted\n")
    assert follower.signal(signal.SIGINT).finish() == 0
    assert follower.err == ""


def test_cluster_is_restored_from_a_backup_and_a_member_removed(
    start: Start, make_nodes: StartCluster, tmp_path: Path
) -> None:
    cluster = make_nodes("east", "west", options=lambda node: ["--journal", f"kept-{node.name}"])
    for node in cluster.values():
        node.start()
    cluster.wait_to_work()
    for data in (b"1", b"2", b"3"):
        cluster["east"].publish(data)
    cluster.events(1, 3)
    saved = tmp_path / "saved"
    program = start("fyrehose", "parcels", "backup", saved, *urls([cluster["west"]]))
    assert program.finish() == 0
    assert program.out.endswith("3 events up to 3, without a state\n")

    # The removed node ends without a failure, after which its supervisor would start it again.
    leader = cluster.leader
    (other,) = cluster.followers
    program = start("fyrehose", "parcels", "remove", other.name, *urls(cluster.values()))
    assert program.finish() == 0
    assert program.out == f"{other.name} is removed; members are {leader.name}\n"
    assert other.program.finish() == 0
    assert "the operator removed this node from the cluster" in other.program.out
    leader.program.signal(signal.SIGKILL).finish()

    restored = "fyrehose", "parcels", "restore", saved, "kept-north", "--name", "north", "--advertise"
    north = make_nodes("north", options=lambda node: ["--journal", "kept-north"])["north"]
    program = start(*restored, north.address, cwd=tmp_path)
    assert program.finish() == 0
    north.start()
    north.wait_to_work("north")
    assert north.publish(b"4") == 4
    assert [data for _, _, data in north.events(1, 4)] == ["1", "2", "3", "4"]
