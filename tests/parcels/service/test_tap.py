"""Options of ``twistd parcels-node`` and their error messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.python.usage import UsageError

from fyrehose_twisted.journal.retention import parse_retention
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.net.options import ServerEndpoint, parse_server_endpoint
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.service import tap
from fyrehose_twisted.parcels.service.journal_history import stream_uri
from fyrehose_twisted.parcels.service.service import ParcelsNode

SECRET = b"a secret that is long enough"


class ApplicationProtocol(ParcelProtocol):
    """Protocol class of an application."""


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (
        ("secret", SECRET, 0o600),
        ("open", SECRET, 0o644),
        ("short", b"short", 0o600),
        ("token", b"a-token-of-visible-characters", 0o600),
    ):
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(mode)
    return tmp_path


def options_of(text: str) -> Any:
    options = tap.Options()
    options.parseOptions(["--name", "a", *text.split()])
    return options


def service_of(text: str) -> ParcelsNode:
    service: Any = tap.makeService(options_of(f"--listen 0 --advertise 127.0.0.1:7878 {text}"))
    return service  # type: ignore[no-any-return]


def refusal_of(text: str) -> str:
    with pytest.raises(SystemExit) as refused:
        tap.makeService(options_of(text))
    said = str(refused.value)
    assert said.startswith("parcels-node: ")
    assert "\n" not in said
    return said


def test_default_options_make_a_local_node() -> None:
    options = options_of("")
    config = options["config"]
    assert (config.name, config.cluster, config.advertise) == ("a", "default", ("127.0.0.1", 7878))
    assert (config.neighbours, config.bootstrap, config.secret) == ((), False, None)
    assert options["listening"] == [ServerEndpoint("tcp:7878:interface=127.0.0.1", ("127.0.0.1", 7878), True)]
    assert options["class"] is ParcelProtocol
    assert options["directory"] is None


def test_equal_neighbours_are_merged() -> None:
    text = "--peer 127.0.0.1:1 --peer db:2 --peer [::1]:3 --peer 127.0.0.1:1 --peer [0:0::1]:3"
    assert options_of(text)["config"].neighbours == (("127.0.0.1", 1), ("db", 2), ("::1", 3))


def test_all_node_options_are_parsed(tmp_path: Path) -> None:
    options = options_of(
        "--cluster trades --bootstrap --secret-file secret --listen tcp:7000:interface=0.0.0.0"
        " --advertise node-a.example:7001 --http 8080 --token-file token --journal j --sync --retention 7d"
        " --window-mib 2 --max-event 1000 --max-pending-mib 3 --max-links 9 --allow-private-callbacks"
        " --callback-port 8443 --callback-port 9000"
        " --host a.example --allowed-origin https://b.example --dial tls:{host}:{port} --metrics tcp:9100"
    )
    config = options["config"]
    assert (config.cluster, config.bootstrap, config.secret) == ("trades", True, SECRET)
    assert config.advertise == ("node-a.example", 7001)
    assert (config.window_bytes, config.max_event, config.pending_bytes) == (2 * 2**20, 1_000, 3 * 2**20)
    assert config.max_links == 9
    assert options["directory"] == tmp_path / "j"
    assert options["journal-config"].retention == parse_retention("7d")
    assert options["tokens"].name_of(b"a-token-of-visible-characters") == "token"
    assert options.reloadable
    assert config.metrics == "tcp:9100:interface=127.0.0.1"
    assert options["serving"] == ServerEndpoint("tcp:8080:interface=127.0.0.1", ("127.0.0.1", 8080), True)
    assert options["web"].allow_private_callbacks
    assert options["web"].callback_ports == (80, 443, 8_443, 9_000)
    assert options["web"].max_body == 1_000
    assert options["web"].hosts == ("a.example",)
    assert options["web"].allowed_origin == "https://b.example"


def test_former_names_of_options_still_work() -> None:
    config = options_of("--neighbour db:2 --http 8080 --http-host a.example")["config"]
    assert (config.neighbours, config.web.hosts) == ((("db", 2),), ("a.example",))


def test_clients_may_have_a_token_each(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(mode=0o600)
    path.write_text("east east-token-of-some-length\nwest west-token-of-some-length\n", encoding="utf-8")
    options = options_of("--http 8080 --tokens-file tokens")
    assert options["config"].tokens.name_of(b"west-token-of-some-length") == "west"
    path.write_text("west another-token-of-some-length\n", encoding="utf-8")
    again = options.read_tokens()
    assert options.reloadable
    assert again is not None
    assert again.name_of(b"west-token-of-some-length") is None
    assert not options_of("--http 8080")["config"].tokens
    assert not options_of("--http 8080").reloadable


@pytest.mark.parametrize(
    ("text", "listening"),
    [
        ("7000", ServerEndpoint("tcp:7000:interface=127.0.0.1", ("127.0.0.1", 7000), True)),
        ("tcp:7000", ServerEndpoint("tcp:7000:interface=127.0.0.1", ("127.0.0.1", 7000), True)),
        ("tcp:port=7000", ServerEndpoint("tcp:port=7000:interface=127.0.0.1", ("127.0.0.1", 7000), True)),
        ("tcp:7000:interface=192.0.2.1", ServerEndpoint("tcp:7000:interface=192.0.2.1", ("192.0.2.1", 7000), False)),
        ("tcp6:7000", ServerEndpoint(r"tcp6:7000:interface=\:\:1", ("::1", 7000), True)),
        (r"tcp6:7000:interface=\:\:", ServerEndpoint(r"tcp6:7000:interface=\:\:", ("::", 7000), False)),
        (r"tcp6:7000:interface=\:\:1", ServerEndpoint(r"tcp6:7000:interface=\:\:1", ("::1", 7000), True)),
        (
            "ssl:7000:privateKey=k",
            ServerEndpoint("ssl:7000:privateKey=k:interface=127.0.0.1", ("127.0.0.1", 7000), True),
        ),
        ("unix:/run/x", ServerEndpoint("unix:/run/x:mode=600", None, True)),
        ("tcp:7000:interface=eth0", ServerEndpoint("tcp:7000:interface=eth0", ("eth0", 7000), False)),
    ],
)
def test_endpoint_without_an_interface_listens_on_loopback(text: str, listening: ServerEndpoint) -> None:
    assert parse_server_endpoint("listen", text, "tcp:7878") == listening


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--name= ", r"--name NAME is required"),
        ("--name " + "x" * 65, r"name 'x+' of 65 bytes: use 1 to 64 bytes of printable text"),
        ("--cluster= ", r"cluster '' of 0 bytes: use 1 to 64 bytes"),
        ("--listen tcp:here", r"--listen 'tcp:here' has no port from 0 to 65535, such as tcp:7878"),
        ("--listen tcp:70000", r"--listen 'tcp:70000' has no port"),
        ("--listen foo:1", r"--listen 'foo:1': unknown endpoint type 'foo'; choose one such as tcp:7878"),
        ("--listen [::1]:7878", r"--listen '\[::1\]:7878' is not an endpoint: over IPv6 it is one such as tcp6:8480:"),
        ("--advertise 127.0.0.1", r"'127.0.0.1' is not HOST:PORT, such as 127.0.0.1:7878 or \[::1\]:7878"),
        ("--advertise 127.0.0.1:0", r"'127.0.0.1:0' is not HOST:PORT"),
        ("--peer ::1:7878", r"'::1:7878' is not HOST:PORT"),
        ("--peer [::1:7878", r"'\[::1:7878' is not HOST:PORT"),
        ("--peer [db]:7878", r"'\[db\]:7878' is not HOST:PORT"),
        ("--peer :7878", r"':7878' is not HOST:PORT"),
        ("--peer db:x", r"'db:x' is not HOST:PORT"),
        ("--listen tcp:1:interface=0.0.0.0 --open", r"--advertise HOST:PORT is required: --listen tcp:1:interface=0.0"),
        (
            "--listen tcp:1:interface=192.0.2.1",
            r"--listen tcp:1:interface=192.0.2.1 is not on loopback: give"
            r" --secret-file, or --open",
        ),
        ("--listen ssl:1:interface=192.0.2.1", r"--listen ssl:1:interface=192.0.2.1 is not on loopback"),
        (
            "--http tcp:1:interface=192.0.2.1",
            r"--http tcp:1:interface=192.0.2.1 is not on loopback: give --tokens-file",
        ),
        ("--secret-file none", r"secret file none cannot be read: No such file"),
        ("--secret-file short", r"secret file short: the secret has 5 bytes; it needs at least 16"),
        ("--secret-file open", r"secret file open is accessible to all users; chmod 600 it"),
        ("--http 0 --token-file none", r"--token-file: secret file .*/none cannot be read"),
        (
            "--http 0 --token-file secret",
            r"--token-file: .*/secret contains something other than one line of visible ASCII",
        ),
        ("--token-file token", r"--token-file requires --http ENDPOINT"),
        ("--tokens-file token", r"--tokens-file requires --http ENDPOINT"),
        ("--allowed-origin https://b.example", r"--allowed-origin requires --http ENDPOINT"),
        ("--http 0 --token-file token --tokens-file token", r"--tokens-file and --token-file exclude each other"),
        ("--metrics foo:1", r"--metrics 'foo:1': unknown endpoint type 'foo'"),
        ("--host a.example", r"--host requires --http ENDPOINT"),
        ("--callback-port 0 --http 1", r"--callback-port 0 is outside 1 to 65535"),
        ("--callback-port 8443", r"--callback-port requires --http ENDPOINT"),
        ("--allow-private-callbacks", r"--allow-private-callbacks requires --http ENDPOINT"),
        ("--sync", r"--sync requires --journal DIR"),
        ("--retention 7d", r"--retention requires --journal DIR"),
        ("--journal j --retention much", r"retention 'much'; use 7d, 50GB or 7d,50GB"),
        ("--window-mib x", r"--window-mib 'x' is not a whole number"),
        ("--window-mib 0", r"--window-mib 0 is outside 1 to 65536"),
        ("--max-event 49153", r"--max-event 49153 is outside 1 to 49152"),
        ("--max-pending-mib 0", r"--max-pending-mib 0 is outside"),
        ("--max-links 0", r"--max-links 0 is outside"),
        ("--dial tls:{host}", r"'tls:\{host\}' must contain \{host\} and \{port\}"),
        ("--protocol no.Where", r"--protocol no.Where cannot be imported"),
        ("--protocol pathlib.Path", r"--protocol pathlib.Path is not a subclass of fyrehose_twisted.parcels.protocol"),
        ("--what", r"option --what not recognized"),
    ],
)
def test_invalid_options_are_refused_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        options_of(arguments)
    assert "\n" not in str(refused.value)


def test_protocol_option_selects_the_protocol_class() -> None:
    options = tap.Options()
    options.parseOptions(["--name", "a", "--protocol", "fyrehose_twisted.parcels.protocol.ParcelProtocol"])
    assert options["class"] is ParcelProtocol


def test_other_interfaces_require_a_secret_a_token_or_open() -> None:
    options_of("--listen tcp:1:interface=192.0.2.1 --open")
    options_of("--listen tcp:1:interface=192.0.2.1 --secret-file secret")
    options_of("--http tcp:1:interface=192.0.2.1 --token-file token")
    options_of("--http tcp:1:interface=192.0.2.1 --open")


def test_port_in_use_is_reported_before_the_start(taken: int) -> None:
    hint = "stop what listens there, or choose another port"
    said = refusal_of(f"--listen {taken}")
    assert said == f"parcels-node: --listen: cannot listen on 127.0.0.1:{taken}: Address already in use; {hint}"
    said = refusal_of(f"--listen 0 --advertise 127.0.0.1:1 --http {taken}")
    assert said == f"parcels-node: --http: cannot listen on 127.0.0.1:{taken}: Address already in use; {hint}"


def test_unassigned_address_is_reported_before_the_start() -> None:
    said = refusal_of("--listen tcp:7878:interface=192.0.2.1 --open")
    assert said.endswith("cannot listen on 192.0.2.1:7878: Cannot assign requested address")


def test_invalid_endpoint_is_reported_before_the_start() -> None:
    assert "--listen 'haproxy:x' is not an endpoint" in refusal_of("--listen haproxy:x --advertise 127.0.0.1:1 --open")


def test_journal_in_use_is_reported_before_the_start(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "j", stream_uri("default"))
    try:
        assert "is in use by another process that writes to it" in refusal_of("--listen 17878 --journal j")
    finally:
        journal.close()


def test_unwritable_journal_directory_is_reported_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be written:" in refusal_of("--listen 17878 --journal file/j")


def test_http_option_without_the_web_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "treq.client", None)  # Make the import fail as if it were not installed.
    monkeypatch.delitem(sys.modules, "fyrehose_twisted.parcels.web.webhooks.http_sender", raising=False)
    options_of("")
    with pytest.raises(SystemExit) as left:
        options_of("--http 0")
    assert left.value.code == (
        "parcels-node: HTTP needs treq, which is not installed: pip install 'fyrehose_twisted[web]'"
    )


def test_options_make_a_parcels_node_service() -> None:
    service = service_of("--http 0 --journal j --bootstrap")
    assert isinstance(service, ParcelsNode)
    assert service.config.name == "a"
