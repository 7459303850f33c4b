from __future__ import annotations

from typing import Any, ClassVar

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import DNSLookupError
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.python.usage import UsageError

from fyrehose_twisted.cli import main
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, NotConnected, OperationalError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.service import client_tap, connect, journal_tap
from fyrehose_twisted.fyrehose.service.connect import bind_client
from fyrehose_twisted.query import tap as query_tap

SECRET = b"a secret of more than sixteen bytes"


class Resolver(Clock):
    """A reactor that knows some names."""

    NAMES: ClassVar = {"one": "127.0.0.1", "two": "127.0.0.2"}

    def resolve(self, name: str) -> Deferred[str]:
        return succeed(self.NAMES[name]) if name in self.NAMES else fail(DNSLookupError(name))


class Port:
    """A port that binds nothing."""

    receive_buffer = 2**30
    ip_versions = (4,)
    bound: ClassVar[list[tuple[int, str]]] = []

    def __init__(self, port: int, protocol: Any, interface: str, reactor: Any) -> None:
        self.bound.append((port, interface))

    def bind(self) -> None:
        pass

    def start(self) -> None:
        pass

    def send_to_other_version(self) -> bool:
        return False

    def getHost(self) -> Any:
        raise AssertionError("not needed")


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Return the local ports and interfaces that were bound."""
    monkeypatch.setattr(connect, "DatagramPort", Port)
    Port.bound = []
    return Port.bound


def bind(protocol: SubscriberProtocol, backbone: str) -> None:
    coroutine = bind_client(Resolver(), protocol, backbone, port=7)
    result: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(result.append)
    if result[0] is not None:
        result[0].raiseException()


def test_names_and_addresses_of_several_backbones_are_resolved(ports: list[tuple[int, str]]) -> None:
    protocol = SubscriberProtocol()
    bind(protocol, "one:2323,127.0.0.1:2323,two:2324")
    assert protocol.backbones == [("127.0.0.1", 2323), ("127.0.0.2", 2324)]
    assert protocol.backbone == ("127.0.0.1", 2323)
    assert ports == [(7, "127.0.0.1")]


def test_a_backbone_without_an_address_is_left_out_with_a_warning() -> None:
    protocol = SubscriberProtocol()
    with capturedLogs() as logged:
        bind(protocol, "three:2323,two:2324")
    assert protocol.backbones == [("127.0.0.2", 2324)]
    assert [str(event["error"])[:7] for event in logged if "error" in event] == ["'three'"]


def test_backbones_none_of_which_has_an_address_are_an_error() -> None:
    with pytest.raises(OperationalError, match="'four' has no IP address"):
        bind(SubscriberProtocol(), "three:2323,four:2324")


def test_backbones_in_several_networks_are_reached_from_all_interfaces(
    monkeypatch: pytest.MonkeyPatch, ports: list[tuple[int, str]]
) -> None:
    monkeypatch.setattr(connect, "source_address_for", lambda address: address[0])
    bind(SubscriberProtocol(), "one:2323,two:2323")
    assert ports == [(7, "0.0.0.0")]
    with pytest.raises(ConfigurationError, match=r"different local addresses \(127.0.0.1, 127.0.0.2\)"):
        bind(SubscriberProtocol(ClientConfig(secret=SECRET)), "one:2323,two:2323")


def test_backbones_of_both_families_are_reached_from_all_interfaces_of_both(
    monkeypatch: pytest.MonkeyPatch, ports: list[tuple[int, str]]
) -> None:
    monkeypatch.setattr(connect, "source_address_for", lambda address: address[0])
    bind(SubscriberProtocol(), "one:2323,[::1]:2323")
    assert ports == [(7, "::")]


def test_a_backbone_over_ipv6_is_reached_from_an_ipv6_address(ports: list[tuple[int, str]]) -> None:
    protocol = SubscriberProtocol()
    bind(protocol, "[::1]:2323")
    assert protocol.backbone == ("::1", 2323)
    assert ports == [(7, "::1")]


def test_the_backbone_is_told_what_a_client_can_send_to() -> None:
    protocol = SubscriberProtocol()
    bind(protocol, "one:2323")
    assert protocol.config.ip_versions == (4,)
    protocol = SubscriberProtocol(ClientConfig(ip_versions=(6,)))
    bind(protocol, "one:2323")
    assert protocol.config.ip_versions == (6,), "as configured"


def test_a_backbone_without_a_route_does_not_matter_if_another_has_one(
    monkeypatch: pytest.MonkeyPatch, ports: list[tuple[int, str]]
) -> None:
    def source(address: Address) -> str:
        if address[0] == "127.0.0.1":
            raise OSError(101, "unreachable")
        return "127.0.0.9"

    monkeypatch.setattr(connect, "source_address_for", source)
    bind(SubscriberProtocol(), "one:2323,two:2323")
    assert ports == [(7, "127.0.0.9")]
    with pytest.raises(NotConnected, match=r"no route to the backbone 127.0.0.1:2323: unreachable"):
        bind(SubscriberProtocol(), "one:2323")


@pytest.mark.parametrize("tap", [client_tap, journal_tap, query_tap])
def test_services_accept_several_backbones_with_commas_and_repeated(tap: Any, tmp_path: Any) -> None:
    options = tap.Options()
    arguments = {
        client_tap: ["--protocol", "fyrehose_twisted.fyrehose.SubscriberProtocol"],
        journal_tap: ["--directory", str(tmp_path)],
        query_tap: ["--directory", str(tmp_path)],
    }[tap]
    options.parseOptions([*arguments, "--backbone", "a:1,b:2", "-b", "c:3"])
    assert options["backbone"] == "a:1,b:2,c:3"
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        tap.Options().parseOptions([*arguments, "--backbone", "a:1,b"])
    with pytest.raises(UsageError, match="9 backbones"):
        tap.Options().parseOptions([*arguments, "--backbone", ",".join(f"a:{port}" for port in range(1, 10))])


def test_a_service_without_the_option_uses_the_default_backbone() -> None:
    options = client_tap.Options()
    options.parseOptions(["--protocol", "fyrehose_twisted.fyrehose.SubscriberProtocol"])
    assert options["backbone"] == "127.0.0.1:2323"


@pytest.mark.parametrize(
    ("arguments", "backbone"),
    [
        ([], "127.0.0.1:2323"),
        (["-b", "a:1"], "a:1"),
        (["--backbone", "127.0.0.1:2323", "-b", "b:2,c:3", "--backbone=d:4"], "127.0.0.1:2323,b:2,c:3,d:4"),
    ],
)
@pytest.mark.parametrize("command", ["sub", "pub", "ping"])
def test_commands_accept_several_backbones_with_commas_and_repeated(
    command: str, arguments: list[str], backbone: str
) -> None:
    assert main._parser().parse_args([command, *arguments]).backbone == backbone
