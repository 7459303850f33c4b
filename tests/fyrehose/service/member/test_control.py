"""Control port of a member."""

from __future__ import annotations

from typing import Any

import pytest
from suite.control_client import ControlClient, check_client_limit

from fyrehose_twisted.errors import NotConnected, OperationalError
from fyrehose_twisted.fyrehose.service.member.control import MemberControl
from fyrehose_twisted.net.control.server import ControlFactory

STATUS = {"name": "a", "leader": "a"}


class Service:
    """Scripted service of a member; also its protocol."""

    def __init__(self) -> None:
        self.protocol = self
        self.commands: list[tuple[str, str | None]] = []
        self.runs = True

    def status(self) -> dict[str, Any]:
        if not self.runs:
            raise NotConnected("this member does not run")
        return STATUS

    def transfer(self, name: str | None = None) -> str:
        if name == "nobody":
            raise OperationalError("nobody cannot lead next")
        self.commands.append(("transfer", name))
        return name or "b"

    def remove(self, name: str) -> None:
        if name == "b":
            raise OperationalError("b is connected")
        self.commands.append(("remove", name))


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def factory(service: Service) -> ControlFactory:
    return ControlFactory(lambda gone: MemberControl(service, gone))


@pytest.fixture
def client(factory: ControlFactory) -> ControlClient:
    return ControlClient(factory)


@pytest.mark.parametrize(
    ("request_", "answer", "command"),
    [
        ({"ask": "transfer"}, {"transferring": "b"}, ("transfer", None)),
        ({"ask": "transfer", "member": None}, {"transferring": "b"}, ("transfer", None)),
        ({"ask": "transfer", "member": "c"}, {"transferring": "c"}, ("transfer", "c")),
        ({"ask": "remove", "member": "c"}, {"removing": "c"}, ("remove", "c")),
    ],
)
def test_commands_are_answered_with_their_member_and_the_status(
    client: ControlClient, service: Service, request_: dict[str, Any], answer: dict[str, Any], command: Any
) -> None:
    assert client.ask(request_) == [{**answer, "status": STATUS}]
    assert service.commands == [command]


def test_status_is_answered_until_the_member_stops(client: ControlClient, service: Service) -> None:
    assert client.ask({"ask": "status"}) == [{"status": STATUS}]
    service.runs = False
    assert client.ask({"ask": "status"}) == [{"error": "this member does not run"}]


def test_refused_commands_are_answered_with_the_reason(client: ControlClient, service: Service) -> None:
    assert client.ask({"ask": "transfer", "member": "nobody"}) == [{"error": "nobody cannot lead next"}]
    assert client.ask({"ask": "remove", "member": "b"}) == [{"error": "b is connected"}]
    assert service.commands == []


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"ask": "else"},
        {"ask": "remove"},
        {"ask": "remove", "member": None},
        {"ask": "transfer", "member": 7},
        {"ask": "transfer", "member": ["b"]},
    ],
)
def test_unknown_request_changes_nothing(client: ControlClient, service: Service, request_: dict[str, Any]) -> None:
    (answer,) = client.ask(request_)
    assert "unknown request" in answer["error"]
    assert service.commands == []
    assert not client.control.is_closed


def test_number_of_control_clients_is_limited(factory: ControlFactory) -> None:
    check_client_limit(factory)
