"""Options of ``twistd fyrehose-frontend``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.python.usage import UsageError

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.frontend import tap
from fyrehose_twisted.fyrehose.frontend.config import RELOADABLE, FrontendConfig
from fyrehose_twisted.fyrehose.frontend.service import FrontendService

SECRET = b"a secret that is long enough"
TOKENS = f"# ours\nann {'a' * 16}\nbob {'b' * 16}\n".encode()


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (
        ("secret", SECRET, 0o600),
        ("short", b"short", 0o600),
        ("tokens", TOKENS, 0o600),
        ("open", TOKENS, 0o644),
        ("none.toml", b"", 0o600),
        ("limits.toml", b"burst = 3\nmax-connections = 7\n", 0o600),
        ("wrong.toml", b"burst = 0\n", 0o600),
        ("unknown.toml", b"publish-timeout = 1\n", 0o600),
    ):
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(mode)
    return tmp_path


def options_of(text: str) -> Any:
    options = tap.Options()
    options.parseOptions(text.split())
    return options


def service_of(text: str) -> FrontendService:
    service: Any = tap.makeService(options_of(text))
    return service  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--backbone here", r"'here' is not HOST:PORT, such as 127.0.0.1:2323"),
        ("--http tcp:x", r"--http 'tcp:x' has no port from 0 to 65535, such as tcp:8481"),
        ("--lines tcp:65536", r"--lines 'tcp:65536' has no port from 0 to 65535, such as tcp:8482"),
        ("--lines udp:8482", r"--lines 'udp:8482' is a UDP port, which cannot be used here; choose tcp:8482"),
        ("--http none --lines none", r"--http and --lines are both none; at least one endpoint is required"),
        (
            "--http tcp:8481:interface=0.0.0.0",
            r"--http tcp:8481:interface=0.0.0.0 is not on loopback: give --tokens-file, or --open",
        ),
        ("--lines tcp:8482:interface=10.0.0.1", r"--lines tcp:8482:interface=10.0.0.1 is not on loopback"),
        ("--tokens-file missing", r"tokens file .*/missing cannot be read: No such file"),
        ("--tokens-file open", r"tokens file .*/open is accessible to all users; chmod 600 it"),
        ("--tokens-file short", r"tokens file .*/short, line 1: expected a name and a token"),
        ("--secret-file short", r"secret file short: the secret has 5 bytes; it needs at least 16"),
        ("--kept 17", r"--kept 17 is outside 0 to 16"),
        ("--kept all", r"--kept 'all' is not a whole number"),
        ("--limits missing", r"limits file .*/missing cannot be read: No such file"),
        ("--limits wrong.toml", r"limits file .*/wrong.toml: burst is a number above 0, and not 0"),
        ("--limits unknown.toml", r"limits file .*/unknown.toml: there is no limit 'publish-timeout'; there are"),
        ("--limits tokens", r"limits file .*/tokens is not TOML"),
    ],
)
def test_invalid_frontend_options_are_reported_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        options_of(arguments)
    assert "\n" not in str(refused.value)


def test_frontend_options_have_defaults() -> None:
    options = options_of("")
    assert options["http-listening"].description == "tcp:8481:interface=127.0.0.1"
    assert options["lines-listening"].description == "tcp:8482:interface=127.0.0.1"
    assert (options["tokens"], options["secret"]) == (None, None)
    assert options["config"] == FrontendConfig()


def test_frontend_options_are_parsed() -> None:
    arguments = "--tokens-file tokens --limits limits.toml --secret-file secret --host Node.example --host node"
    options = options_of(f"{arguments} --allowed-origin https://example.org --http tcp:0:interface=0.0.0.0")
    assert options["config"] == FrontendConfig(
        burst=3.0, max_connections=7, hosts=("Node.example", "node"), allowed_origin="https://example.org"
    )
    assert options["secret"] == SECRET
    assert options["tokens"].name_of(b"b" * 16) == "bob"


@pytest.mark.parametrize("how", ["--open", "--tokens-file tokens"])
def test_endpoints_other_than_loopback_need_tokens_or_open(how: str) -> None:
    assert not options_of(f"--lines tcp:0:interface=0.0.0.0 {how}")["lines-listening"].local


def test_every_reloadable_limit_is_accepted_in_the_limits_file(in_tmp_path: Path) -> None:
    names = [name.replace("_", "-") for name in RELOADABLE]
    (in_tmp_path / "all.toml").write_text("".join(f"{name} = 9\n" for name in names))
    config = options_of("--limits all.toml")["config"]
    assert {getattr(config, name) for name in RELOADABLE} == {9}


@pytest.mark.parametrize(
    ("text", "reloadable"), [("", False), ("--tokens-file tokens", True), ("--limits limits.toml", True)]
)
def test_options_tell_whether_there_is_a_file_to_reload(in_tmp_path: Path, text: str, reloadable: bool) -> None:
    (in_tmp_path / "limits.toml").write_text("burst = 4\n")
    assert options_of(text).reloadable is reloadable


def test_limits_and_tokens_are_reloaded(in_tmp_path: Path) -> None:
    options = options_of("--tokens-file tokens --limits limits.toml")
    (in_tmp_path / "tokens").write_text("eve " + "e" * 16)
    (in_tmp_path / "limits.toml").write_text("burst = 4\n")
    config, tokens = options.reload()
    assert (config.burst, tokens.name_of(b"e" * 16), tokens.name_of(b"a" * 16)) == (4.0, "eve", None)
    (in_tmp_path / "limits.toml").write_text("burst = -4\n")
    with pytest.raises(ConfigurationError, match="burst"):
        options.reload()


@pytest.mark.parametrize("option", ["http", "lines"])
def test_a_port_in_use_is_reported_before_the_service_starts(option: str, taken: int) -> None:
    other = "lines" if option == "http" else "http"
    with pytest.raises(SystemExit) as refused:
        service_of(f"--{option} tcp:{taken} --{other} none")
    said = str(refused.value)
    assert said.startswith(f"fyrehose-frontend: --{option}")
    assert "Address already in use" in said
    assert "\n" not in said


def test_make_service_passes_the_options_on() -> None:
    service = service_of(
        "--http none --lines tcp:0 --backbone 127.0.0.1:7 --limits limits.toml --secret-file secret --kept 2"
    )
    assert (service.backbone, service.config.burst) == ("127.0.0.1:7", 3.0)
    assert service.publisher.config.secret == SECRET
    assert service.publisher.config.subscribe
    assert service.publish_queue.kept == 2


def test_a_kept_number_above_16_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="kept=17: choose 0 to 16 journals"):
        FrontendService("127.0.0.1:7", http=None, lines=None, kept=17)


def test_an_invalid_endpoint_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"fyrehose-frontend: --http 'haproxy:x' is not an endpoint such as"):
        service_of("--http haproxy:x --open --lines none")
