"""Client tokens and budgets."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.task import Clock

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.host_addresses import source_network
from fyrehose_twisted.web import client_limits as module
from fyrehose_twisted.web.client_limits import ClientBudgets, ClientLimits
from fyrehose_twisted.web.tokens import Tokens, read_tokens, shared_token


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("local", "local"),
    ],
)
def test_source_network_is_derived_from_the_address_prefix(address: str, client: str) -> None:
    assert source_network(address) == client


def test_request_budget_refills_at_the_configured_rate() -> None:
    clock = Clock()
    clients = ClientBudgets(ClientLimits(requests=2, burst=3), clock)
    assert [clients.acquire("a") for _ in range(4)] == [0, 0, 0, 0.5]
    clock.advance(0.5)
    assert [clients.acquire("a") for _ in range(2)] == [0, 0.5]
    clock.advance(100)
    assert [clients.acquire("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert clients.refused == {"requests": 3}


def test_clients_without_limits_are_never_refused() -> None:
    clients = ClientBudgets(None, Clock())
    assert {clients.acquire("a") for _ in range(1_000)} == {0}
    assert all(clients.stream_opened("a") for _ in range(1_000))


def test_client_limits_may_be_changed_at_runtime() -> None:
    clients = ClientBudgets(ClientLimits(requests=1, burst=1), Clock())
    clients.acquire("a")
    assert clients.acquire("a") > 0
    clients.limits = None
    assert clients.acquire("a") == 0


def test_concurrent_streams_are_limited() -> None:
    clients = ClientBudgets(ClientLimits(streams=2), Clock())
    assert [clients.stream_opened("a") for _ in range(3)] == [True, True, False]
    assert clients.stream_opened("b")
    clients.stream_closed("a")
    assert clients.stream_opened("a")
    for client in "aab":
        clients.stream_closed(client)
    assert not clients._streams


def test_least_recently_active_client_is_forgotten_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    clients = ClientBudgets(ClientLimits(requests=1, burst=1), Clock())
    for client in ("a", "b", "a", "c"):
        clients.acquire(client)
    assert len(clients) == 2
    assert clients.acquire("b") == 0  # Its budget starts over.
    assert clients.acquire("c") > 0


def written(path: Path, text: str, mode: int = 0o600) -> str:
    file = path / "tokens"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_tokens_file_is_parsed(tmp_path: Path) -> None:
    tokens = read_tokens(written(tmp_path, f"# clients\n\nann {'a' * 16}\n  bob\t{'b' * 20} \r\n"))
    assert len(tokens) == 2
    assert tokens.name_of(b"a" * 16) == "ann"
    assert tokens.name_of(b"b" * 20) == "bob"
    assert tokens.name_of(b"b" * 16) is None
    assert tokens.name_of(b"") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no token"),
        ("# x\n", "has no token"),
        ("ann\n", "line 1: expected a name and a token"),
        (f"ann {'s' * 16} more\n", "line 1: expected"),
        (f"a/b {'s' * 16}\n", "line 1: expected"),
        ("x " + "y" * 16 + "\nann short\n", "line 2: a token has 16 to 256"),
        (f"ann {'s' * 16}\nann {'u' * 16}\n", "line 2: ann already has a token"),
        (f"ann {'s' * 15}\x7f\n", "line 1: a token has"),
    ],
)
def test_invalid_tokens_file_is_rejected(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_tokens(written(tmp_path, text))
    assert "ssss" not in str(caught.value)
    assert "short" not in str(caught.value)


def test_world_readable_tokens_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_tokens(written(tmp_path, f"ann {'a' * 16}\n", 0o604))


def test_missing_tokens_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_tokens(str(tmp_path / "none"))


def test_empty_token_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="admit every client"):
        shared_token(b"")
    with pytest.raises(ConfigurationError):
        Tokens({})
