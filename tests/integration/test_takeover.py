"""Groups of backbones as processes: takeovers, handovers, restarts and strangers."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from integration.running.control import Asking
from integration.running.member import RunningGroup, RunningMember, RunningSubscriber
from integration.running.programs import DEADLINE, Start, wait_until

SECRET = "a secret that is long enough"


@pytest.fixture
def start_group(start: Start, free_port: Callable[[], int], tmp_path: Path) -> Callable[..., RunningGroup]:
    """Start members that share a secret, and wait until they are a group."""

    def started(names: str, options: Callable[[RunningMember], list[object]]) -> RunningGroup:
        write_secret(tmp_path / "secret", SECRET)
        found = RunningGroup()
        for name in names:
            found[name] = RunningMember(start, Asking, name, (free_port(), free_port(), free_port()), tmp_path)
        for member in found.values():
            member.peers = [other for other in found.values() if other is not member]
            member.options = ["--secret-file", "secret", "--metrics", "tcp:0", *options(member)]
            member.start(*(["--bootstrap"] if member.name == names[0] else []))
        found.wait_until_joined()
        found.leader()
        return found

    return started


@pytest.fixture
def group(start_group: Callable[..., RunningGroup]) -> RunningGroup:
    """Start a group of three members."""
    return start_group("abc", lambda member: [])


@pytest.fixture
def subscriber(start: Start, group: RunningGroup, tmp_path: Path) -> RunningSubscriber:
    """Start a subscriber, and wait until all members know it."""
    found = RunningSubscriber(
        start("fyrehose", "sub", "-b", group.addresses, "--secret-file", "secret", "--format", "json", cwd=tmp_path)
    )
    group.wait_for(lambda state: state.get("clients") == 1)
    return found


Publish = Callable[..., None]


@pytest.fixture
def publish(start: Start, group: RunningGroup, tmp_path: Path) -> Publish:
    """Publish messages to the group; fail if one is not acknowledged."""

    def published(*messages: str, timeout: float = DEADLINE) -> None:
        options = "-b", group.addresses, "--secret-file", "secret", "--connect-timeout", timeout, "--timeout", timeout
        program = start("fyrehose", "pub", *options, cwd=tmp_path)
        assert program.finish("".join(f"{one}\n" for one in messages).encode()) == 0, (program, group.describe())

    return published


def write_secret(path: Path, secret: str) -> None:
    path.write_text(secret)
    path.chmod(0o600)


def counted(first: str, count: int = 50) -> list[str]:
    return [f"{first}{number}" for number in range(count)]


def check_order(messages: list[tuple[int, str]], *data: str) -> None:
    """Check that the messages are these, in order, each with a higher number than the one before."""
    assert [one for _, one in messages] == list(data)
    numbers = [number for number, _ in messages]
    assert numbers == sorted(set(numbers))


def seams(member: RunningMember) -> list[tuple[int, int]]:
    """Return the highest number held and the first number, of each term in which a process numbered messages."""
    pattern = r"numbering from ([\d,]+) in term [\d,]+; clients hold messages up to ([\d,]+)"
    found = re.findall(pattern, member.program.out)
    return [(int(held.replace(",", "")), int(first.replace(",", ""))) for first, held in found]


def page(member: RunningMember, path: str) -> str:
    """Return a page of the metrics port."""
    place = member.program.wait_for(r"metrics at (http://\S+)/metrics")[1]
    with build_opener(ProxyHandler({})).open(place + path, timeout=DEADLINE) as answer:
        found: str = answer.read().decode()
        return found


def test_another_member_takes_over_when_the_leader_is_killed(
    group: RunningGroup, subscriber: RunningSubscriber, publish: Publish
) -> None:
    before, after, later = counted("before"), counted("after"), counted("later")
    publish(*before)
    subscriber.wait_for(*before)
    killed = group.leader()
    killed.kill()
    publish(*after)
    check_order(subscriber.wait_for(*after), *before, *after)
    successor = group.leader(killed)
    assert successor is not killed
    killed.start()
    group.wait_until_joined()
    group.wait_for(lambda state: state["leader"] == successor.name)
    assert killed.status()["state"] == "standby"
    publish(*later)
    check_order(subscriber.wait_for(*later), *before, *after, *later)
    # A member that stands by shows its clients too, and counts what is not for it.
    shown = json.loads(page(killed, "/clients"))
    assert [client["kind"] for client in shown["list"]].count("subscriber") == 1
    assert shown["member"]["leader"] == successor.name
    assert "fyrehose_backbone_leading 0.0" in page(killed, "/metrics")
    assert "fyrehose_backbone_leading 1.0" in page(successor, "/metrics")
    subscriber.stop()


def test_leader_that_is_stopped_hands_over_without_a_skipped_number(
    group: RunningGroup, subscriber: RunningSubscriber, publish: Publish
) -> None:
    before, after = counted("before"), counted("after")
    publish(*before)
    subscriber.wait_for(*before)
    stopped = group.leader()
    last = stopped.status()["last"]
    stopped.stop()
    successor = group.leader(stopped)
    assert seams(successor)[-1] == (last, last + 1)
    publish(*after)
    messages = subscriber.wait_for(*after)
    check_order(messages, *before, *after)
    # In between is the message that starts the term.
    assert [number for number, _ in messages][-len(after)] == last + 2


def test_command_chooses_the_next_leader(start: Start, group: RunningGroup) -> None:
    former = group.leader()
    chosen = next(member for member in group.values() if member is not former)
    command = "fyrehose", "backbone", "transfer", "--control", f"tcp:{former.control}"
    program = start(*command, chosen.name)
    assert program.finish() == 0, program
    assert group.leader(former) is chosen
    program = start(*command)  # It does not lead any more.
    assert program.finish() == 1
    assert f"{chosen.name} leads" in program.err


def test_group_goes_on_after_all_members_were_killed_at_once(
    group: RunningGroup, subscriber: RunningSubscriber, publish: Publish
) -> None:
    before, after = counted("before"), counted("after")
    publish(*before)
    subscriber.wait_for(*before)
    for member in group.values():
        member.program.signal(signal.SIGKILL)
    for member in group.values():
        member.kill()
        member.start()
    publish(*after)
    check_order(subscriber.wait_for(*after), *before, *after)


def test_leader_that_was_paused_beyond_its_lease_disturbs_nobody(
    group: RunningGroup, subscriber: RunningSubscriber, publish: Publish
) -> None:
    before, meanwhile, after = counted("before"), counted("meanwhile"), counted("after")
    publish(*before)
    subscriber.wait_for(*before)
    paused = group.leader()
    paused.program.signal(signal.SIGSTOP)
    others = [member for member in group.values() if member is not paused]
    wait_until(lambda: any(member.is_numbering for member in others), lambda: [one.status() for one in others])
    publish(*meanwhile)
    subscriber.wait_for(*meanwhile)
    paused.program.signal(signal.SIGCONT)
    group.wait_for(lambda state: state.get("leader") not in (None, paused.name))
    assert paused.status()["state"] == "standby"
    publish(*after)
    check_order(subscriber.wait_for(*after), *before, *meanwhile, *after)


def test_stranger_without_the_secret_is_refused(
    start: Start, group: RunningGroup, free_port: Callable[[], int], tmp_path: Path
) -> None:
    leader = group.leader()
    with socket.create_connection(("127.0.0.1", leader.peer_port), DEADLINE) as stranger:
        hello = stranger.recv(4_096)
        assert re.fullmatch(rb"AUTH [0-9a-f]{32}\r\n", hello)
        # A frame of a member in place of a proof.
        stranger.sendall(b"\0\0\0\x02\x81\x02" + b"\r\n" * 20)
        with suppress(ConnectionResetError):
            assert stranger.recv(4_096) == b""
    write_secret(tmp_path / "other", SECRET[::-1])
    other = RunningMember(start, Asking, "d", (0, 0, free_port()), tmp_path)
    other.peers = list(group.values())
    other.options = ["--peer-secret-file", "other"]
    other.start()
    other.program.wait_for("hung up on 127.0.0.1|ended before the first message|closed the connection")
    wait_until(lambda: "auth_wrong_proof" in str(leader.status().get("counters")), group.describe)
    names = [one["name"] for one in leader.status()["members"]]
    assert names == ["a", "b", "c"]
    assert other.status()["quorum"] == 0


def test_lost_member_is_replaced_or_removed(start: Start, group: RunningGroup, tmp_path: Path) -> None:
    leader = group.leader()
    lost, kept = [member for member in group.values() if member is not leader]
    lost.kill()
    for path in tmp_path.glob(f"{lost.name}.state*"):
        path.unlink()
    lost.start()
    group.wait_until_joined()
    lost.kill()
    command = "fyrehose", "backbone", "members", "remove", lost.name, "--control", f"tcp:{leader.control}"
    wait_until(
        lambda: all(not one["connected"] for one in leader.status()["members"] if one["name"] == lost.name),
        group.describe,
    )
    program: Any = start(*command)
    assert program.finish() == 0, (program, group.describe())
    group.wait_for(lambda state: [one["name"] for one in state["members"]] == sorted((leader.name, kept.name)), leader)


def test_state_of_a_member_is_refused_to_another_process_and_when_damaged(
    group: RunningGroup, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    member = next(one for one in group.values() if one is not group.leader())
    twin = RunningMember(member._start, Asking, member.name, (free_port(), free_port(), free_port()), tmp_path)
    twin.peers, twin.options = member.peers, member.options
    twin.start()
    assert twin.program.finish() == 1
    assert re.search(r"state file .* is in use by another", twin.program.out)
    member.kill()
    path = tmp_path / f"{member.name}.state.member"
    content = bytearray(path.read_bytes())
    content[20] ^= 255
    path.write_bytes(content)
    member.start()
    assert member.program.finish() == 1
    assert "is not usable: it is damaged" in member.program.out
    assert "Traceback" not in member.program.out


def test_members_speak_over_tls(start_group: Callable[..., RunningGroup], certified: tuple[Path, Path]) -> None:
    certificate, key = certified
    dial = f"tls:{{host}}:{{port}}:trustRoots={certificate.parent}"
    served = f"interface=127.0.0.1:certKey={certificate}:privateKey={key}"
    group = start_group("ab", lambda one: ["--peer-listen", f"ssl:{one.peer_port}:{served}", "--dial", dial])
    leader = group.leader()
    (other,) = [member for member in group.values() if member is not leader]
    leader.stop()
    group.wait_for(lambda state: state["leader"] != leader.name, other)
    leader.start()
    group.wait_until_joined()


def test_witness_makes_a_majority_and_numbers_nothing(start_group: Callable[..., RunningGroup]) -> None:
    group = start_group("abw", lambda one: ["--witness"] if one.name == "w" else [])
    killed = group.leader()
    killed.kill()
    (successor,) = [member for name, member in group.items() if name != "w" and member is not killed]
    assert group.leader(killed) is successor
    assert group["w"].status()["state"] == "witness"
    assert group["w"].status()["leader"] == successor.name


def test_clients_of_a_relay_follow_the_next_leader_without_knowing_the_group(
    start: Start, group: RunningGroup, publish: Publish, free_port: Callable[[], int], tmp_path: Path
) -> None:
    place, secret = f"127.0.0.1:{free_port()}", ("--secret-file", "secret")
    options = ("--listen", f"udp:{place.rpartition(':')[2]}", "--backbone", group.addresses, *secret)
    relay = start("twistd", "-n", "--pidfile=", "fyrehose-relay", *options, cwd=tmp_path, stderr=subprocess.STDOUT)
    relay.wait_for("following parent")
    follower = RunningSubscriber(start("fyrehose", "sub", "-b", place, *secret, "--format", "json", cwd=tmp_path))
    relay.wait_for("client .* joined")
    publish("one", "two")
    follower.wait_for("one", "two")
    leader = group.leader()
    leader.kill()
    group.leader(leader)
    publish("three")
    found = follower.wait_for("one", "two", "three")
    assert found == sorted(found), "in order, and no marker of a term is delivered"
    program = start("fyrehose", "pub", "-b", place, *secret, cwd=tmp_path)
    assert program.finish(b"four\n") == 0, program
    follower.wait_for("one", "two", "three", "four")
