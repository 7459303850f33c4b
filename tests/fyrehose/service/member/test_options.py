"""Options of ``twistd fyrehose-backbone`` for members, and their error messages."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from twisted.python.usage import UsageError

from fyrehose_twisted.consensus.messages import MemberId, Snapshot
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.node.member.persistent_state import EMPTY_GROUP, MemberState, encode_group
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol
from fyrehose_twisted.fyrehose.service import backbone_tap, serving_options
from fyrehose_twisted.fyrehose.service.backbone import BackboneService
from fyrehose_twisted.fyrehose.service.member.config import MemberServiceConfig
from fyrehose_twisted.fyrehose.service.member.options import member_state_path
from fyrehose_twisted.fyrehose.service.member.service import MemberService
from fyrehose_twisted.fyrehose.service.member.state_file import MemberStateFile

SECRET = b"a secret that is long enough"
MEMBER = "--member a --peer 10.0.0.2:2324"


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("secret", SECRET), ("peers", SECRET[::-1]), ("short", b"short")):
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(0o600)
    return tmp_path


def options_of(text: str) -> Any:
    options = backbone_tap.Options()
    options.parseOptions(text.split())
    return options


def member_of(text: str) -> MemberServiceConfig:
    found: MemberServiceConfig = options_of(f"{MEMBER} {text}")["group-member"]
    return found


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--peer 10.0.0.2:2324", "--peer requires --member NAME"),
        ("--bootstrap", "--bootstrap requires --member NAME"),
        ("--witness", "--witness requires --member NAME"),
        ("--control tcp:5", "--control requires --member NAME"),
        ("--peer-listen tcp:5", "--peer-listen requires --member NAME"),
        ("--peer-secret-file secret", "--peer-secret-file requires --member NAME"),
        ("--dial tls:{host}:{port}", "--dial requires --member NAME"),
        ("--advertise-host 10.0.0.1", "--advertise-host requires --member NAME"),
        ("--member a", "--member requires --peer HOST:PORT for each other member"),
        ("--member=", "--member '': use letters, digits"),
        (f"--member {'a' * 65} --peer h:1", "use letters, digits, '-', '_' and '.', at most 64"),
        ("--member a/b --peer h:1", "--member 'a/b': use letters"),
        ("--member a --peer h", "'h' is not HOST:PORT"),
        (
            "--member a " + " ".join(f"--peer h:{n}" for n in range(1, 8)),
            "--peer: 7 other members given; a group has at most 7",
        ),
        (f"{MEMBER} --witness --bootstrap", "--bootstrap does not apply to a witness"),
        (f"{MEMBER} --port 65535", "--port 65535 leaves no port after it: pass --peer-listen"),
        (f"{MEMBER} --peer-listen udp:5", "--peer-listen 'udp:5' is a UDP port"),
        (
            f"{MEMBER} --peer-listen tcp:5:interface=10.0.0.1",
            "--peer-listen .* is not on loopback, and any program .* --secret-file",
        ),
        (f"{MEMBER} --peer-listen tcp:5:interface=10.0.0.1 --open", "is not on loopback"),
        (f"{MEMBER} --interface 10.0.0.1 --allow 10.0.0.0/8", "is not on loopback, and any program"),
        (f"{MEMBER} --peer-secret-file short", "it needs at least 16"),
        (
            f"{MEMBER} --interface 0.0.0.0 --secret-file secret",
            "--interface 0.0.0.0:2323 is every address of this host: pass --advertise-host",
        ),
        (
            f"{MEMBER} --peer-listen tcp:5:interface=0.0.0.0 --secret-file secret",
            "--peer-listen 0.0.0.0:5 is every address",
        ),
        (f"{MEMBER} --advertise-host host", "--advertise-host 'host' is not an IP address that clients can reach"),
        (
            f"{MEMBER} --advertise-host fe80::1",
            "--advertise-host 'fe80::1' is not an IP address that clients can reach",
        ),
        (f"{MEMBER} --interface :: --secret-file secret", "--interface :: serves both IP versions, but a member tells"),
        (f"{MEMBER} --advertise-host 0.0.0.0", "--advertise-host '0.0.0.0' is no"),
        (f"{MEMBER} --dial tls:x", "must contain {host} and {port}"),
        (
            f"{MEMBER} --control tcp:5:interface=10.0.0.1",
            "--control .* is not on loopback, and any client that reaches it can choose the leader",
        ),
        (
            f"{MEMBER} --protocol fyrehose_twisted.fyrehose.protocol.backbone.BackboneProtocol",
            "is not a subclass of .*MemberProtocol",
        ),
    ],
)
def test_invalid_options_are_refused_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        options_of(arguments)
    assert "\n" not in str(refused.value)


def test_defaults_of_a_member() -> None:
    assert member_of("--port 5000") == MemberServiceConfig(
        name="a", peers=(("10.0.0.2", 2_324),), listen="tcp:5001:interface=127.0.0.1"
    )
    assert member_of("--port 0").listen == "tcp:0:interface=127.0.0.1"


def test_options_of_a_member() -> None:
    found = member_of(
        "--interface 10.0.0.1 --secret-file secret --peer b.example:9 --peer 10.0.0.2:2324 --bootstrap --control tcp:77"
        " --dial tls:{host}:{port} --advertise-host 192.0.2.1"
    )
    assert found == MemberServiceConfig(
        name="a",
        peers=(("10.0.0.2", 2_324), ("b.example", 9)),
        listen="tcp:2324:interface=10.0.0.1",
        advertise="192.0.2.1",
        secret=SECRET,
        dial="tls:{host}:{port}",
        bootstrap=True,
        control="tcp:77:interface=127.0.0.1",
    )
    assert SECRET.decode() not in repr(found)
    assert member_of("--witness").witness
    assert member_of("--secret-file secret --peer-secret-file peers").secret == SECRET[::-1]


def test_port_of_systemd_is_followed_by_that_for_members(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as passed:
        passed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(serving_options, "activated_udp_socket", lambda option, name: passed)
        assert member_of("--systemd push").listen == f"tcp:{passed.getsockname()[1] + 1}:interface=127.0.0.1"


@pytest.mark.parametrize(
    ("advertise", "client", "peer", "expected"),
    [
        (None, ("10.0.0.1", 1), ("10.0.0.1", 2), (("10.0.0.1", 1), ("10.0.0.1", 2))),
        (None, ("10.0.0.1", 1), ("10.9.0.1", 2), (("10.0.0.1", 1), ("10.9.0.1", 2))),
        ("192.0.2.1", ("0.0.0.0", 1), ("::", 2), (("192.0.2.1", 1), ("192.0.2.1", 2))),
        (None, ("2001:db8::1", 1), ("2001:db8::1", 2), (("2001:db8::1", 1), ("2001:db8::1", 2))),
        ("2001:db8::1", ("0.0.0.0", 1), ("::", 2), (("2001:db8::1", 1), ("2001:db8::1", 2))),
    ],
)
def test_advertised_addresses(advertise: str | None, client: Any, peer: Any, expected: Any) -> None:
    config = MemberServiceConfig(name="a", peers=(("b", 1),), listen="tcp:5", advertise=advertise)
    assert config.advertised(client, peer) == expected


def test_every_address_of_a_host_cannot_be_advertised() -> None:
    config = MemberServiceConfig(name="a", peers=(("b", 1),), listen="tcp:5")
    with pytest.raises(ConfigurationError, match=r"--peer-listen \[::\]:2 is every address"):
        config.advertised(("10.0.0.1", 1), ("::", 2))


def service_of(text: str) -> Any:
    return backbone_tap.makeService(options_of(f"--port 0 {text}"))


def refusal_of(text: str) -> str:
    with pytest.raises(SystemExit) as refused:
        service_of(text)
    return str(refused.value)


def test_service_without_member_is_that_of_a_backbone() -> None:
    assert type(service_of("")) is BackboneService
    assert service_of("").protocol.__class__.__name__ == "BackboneProtocol"


def test_service_of_a_member_runs_the_class_of_an_application() -> None:
    service = service_of(f"{MEMBER} --settle-time 7 --max-clients 5")
    assert type(service) is MemberService
    assert type(service.protocol) is MemberProtocol
    assert service.protocol.config.max_clients == 5


def test_class_of_an_application_can_be_run(monkeypatch: pytest.MonkeyPatch, in_tmp_path: Path) -> None:
    (in_tmp_path / "own_member.py").write_text(
        "from fyrehose_twisted.fyrehose.protocol import MemberProtocol\nclass Own(MemberProtocol): pass\n"
    )
    monkeypatch.syspath_prepend(in_tmp_path)
    assert type(service_of(f"{MEMBER} --protocol own_member.Own").protocol).__name__ == "Own"


def test_unusable_state_and_ports_are_reported_in_one_line(in_tmp_path: Path) -> None:
    path = member_state_path(in_tmp_path / "fyrehose-default.state")
    assert path.name == "fyrehose-default.state.member"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refusal_of(f"{MEMBER} --peer-listen tcp:{port}")
        assert told.startswith(
            f"fyrehose-backbone: --peer-listen: cannot listen on 127.0.0.1:{port}: Address already in"
        )
        assert "--control: cannot listen on" in refusal_of(f"{MEMBER} --control tcp:{port}")
    file = MemberStateFile(path, "fyrehose://default", "b")
    file.persist(MemberState(MemberId("b", 1), 0, None, 0, Snapshot(0, 0, encode_group(EMPTY_GROUP)), ()))
    assert "is in use by another node" in refusal_of(MEMBER)
    file.close()
    assert "it belongs to member b, not to a" in refusal_of(MEMBER)
    path.write_bytes(b"nonsense")
    assert "it is not the state of a member" in refusal_of(MEMBER)
    os.unlink(path)
    service_of(MEMBER)
