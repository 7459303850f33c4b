"""Confidentiality of secrets: none in logs, options, environments, metrics, responses, states or journals."""

from __future__ import annotations

import base64
import http.client
import re
import secrets
import signal
import socket
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from integration.running.irc import StartIrcd
from integration.running.programs import AwaitTrue, Program, Start
from twisted.application.service import ServiceMaker
from twisted.python.usage import UsageError

PLUGINS = import_module("twisted.plugins.fyrehose_twisted_plugins")
MAKERS = {maker.tapname: maker for maker in vars(PLUGINS).values() if isinstance(maker, ServiceMaker)}

DEADLINE = 120.0
"""Seconds after which an awaited event fails a test; reached only on failure."""
JSON_LOG = "--logger=fyrehose_twisted.process.logs.json_lines"


class Secret:
    """A secret in a file, and all encodings in which it could appear."""

    def __init__(self, path: Path, name: str = "") -> None:
        self.text = f"hush-{secrets.token_hex(16)}"
        self.path = path
        path.write_text(f"{name} {self.text}\n" if name else f"{self.text}\n")
        path.chmod(0o600)
        data = self.text.encode()
        self.forms = [data, data.hex().encode(), base64.b64encode(data).rstrip(b"=")[:-1], repr(data).encode()]

    def is_in(self, what: bytes) -> bool:
        return any(form in what for form in self.forms)


def seen(program: Program) -> bytes:
    """Return what other users can see of a process, and its output."""
    process = Path(f"/proc/{program.process.pid}")
    files = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    return files + program.out.encode() + program.err.encode()


def written(path: Path, *but: Path) -> bytes:
    """Return the contents of all files below ``path``."""
    return b"".join(one.read_bytes() for one in path.rglob("*") if one.is_file() and one not in but)


def ask(port: int, path: str, token: str | None = None, body: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    found = str(answer.headers).encode() + answer.read()
    connection.close()
    return found


def garbage(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), DEADLINE) as connection, suppress(ConnectionError):
        connection.sendall(b"\xff\x00garbage\r\n\r\n")
        while connection.recv(65_536):
            pass


@pytest.mark.parametrize("logger", [[], pytest.param([JSON_LOG], marks=pytest.mark.extended)])
def test_backbone_frontend_and_query_do_not_disclose_secrets(
    start: Start, await_true: AwaitTrue, tmp_path: Path, logger: list[str]
) -> None:
    secret, token = Secret(tmp_path / "secret"), Secret(tmp_path / "tokens", "ann")
    twistd = ("twistd", "-n", "--pidfile=", *logger)
    state = tmp_path / "state"
    backbone = start(*twistd, "fyrehose-backbone", "--port=0", "--state", state, "--secret-file", secret.path)
    place = "127.0.0.1:" + backbone.wait_for(r"listening on 127.0.0.1:(\d+)")[1]
    words = ("--backbone", place, "--secret-file", secret.path, "--tokens-file", token.path)
    query = start(*twistd, "fyrehose-query", "--directory", tmp_path / "kept", "--http=tcp:0", *words)
    frontend = start(*twistd, "fyrehose-frontend", "--http=tcp:0", "--lines=tcp:0", *words)
    reading = int(query.wait_for(r"--http: listening on 127.0.0.1:(\d+)")[1])
    http_port = int(frontend.wait_for(r"--http: listening on 127.0.0.1:(\d+)")[1])
    lines = int(frontend.wait_for(r"--lines: listening on 127.0.0.1:(\d+)")[1])
    backbone.wait_for("joined", times=2)
    assert b'{"sequence":1}' in ask(http_port, "/messages", token.text, b"hello")
    records = "/streams/fyrehose-default/records"
    await_true(lambda: b"hello" in ask(reading, records, token.text), lambda: query)

    told = b""
    for port, paths in ((reading, ("/streams", "/overview", "/x")), (http_port, ("/x",))):
        for path in (*paths, "/metrics", "/health", "/openapi.json"):
            told += ask(port, path, token.text) + ask(port, path, token.text[:-1]) + ask(port, path)
        garbage(port)
    with socket.create_connection(("127.0.0.1", lines), DEADLINE) as connection:
        connection.sendall(f"token {token.text}x\n".encode())
        told += connection.recv(1_000)
    for service in (query, frontend):
        service.signal(signal.SIGHUP).wait_for("SIGHUP: .*1 token")
    for service in (backbone, query, frontend):
        told += seen(service)
        service.signal(signal.SIGTERM).finish()
        told += service.out.encode() + service.err.encode()
    told += written(tmp_path, secret.path, token.path)
    assert b"hello" in told
    assert not secret.is_in(told)
    assert not token.is_in(told)


@pytest.mark.extended
def test_node_services_do_not_disclose_secrets(start: Start, start_ircd: StartIrcd, tmp_path: Path) -> None:
    ircd = start_ircd("ngircd")
    secret, token, password = (Secret(tmp_path / name) for name in ("secret", "token", "password"))
    common = ("twistd", "-n", "--pidfile=")
    parcels = start(
        *(*common, "parcels-node", "--name=a", "--bootstrap", "--listen=tcp:0", "--http=tcp:0"),
        *("--secret-file", secret.path, "--token-file", token.path, "--journal", tmp_path / "parcels"),
    )
    freenet = start(
        *(*common, "freenet-node", "--listen=tcp:0", "--secret-file", secret.path, "--metrics=tcp:0"),
        *("--state", tmp_path / "freenet", "--control", f"unix:{tmp_path / 'control'}"),
    )
    hydra = start(
        *(*common, "hydra-node", "--tag=a", "--bootstrap", "--network-size=1", "--listen=tcp:0", "--metrics=tcp:0"),
        *("--secret-file", secret.path, "--irc", ircd.address, "--irc-password-file", password.path),
        *("--channel", "#c", "--sasl-account=a", "--sasl-password-file", password.path),
        *("--state", tmp_path / "hydra", "--control", f"unix:{tmp_path / 'hydra-control'}"),
    )
    port = int(parcels.wait_for(r"--http: listening on 127.0.0.1:(\d+)")[1])
    metrics = int(freenet.wait_for(r"--metrics: listening on 127.0.0.1:(\d+)")[1])
    node = int(freenet.wait_for(r"--listen: listening on \D*127.0.0.1:(\d+)")[1])
    told = ask(port, "/events", token.text, b"hello") + ask(metrics, "/metrics")
    for path in ("/cluster", "/metrics", "/health", "/openapi.json", "/events", "/callbacks"):
        told += ask(port, path, token.text) + ask(port, path)
    status = start("fyrehose", "freenet", "status", "--control", f"unix:{tmp_path / 'control'}")
    assert status.finish() == 0
    told += status.out.encode() + status.err.encode()
    garbage(node)
    hydra.wait_for("SASL|on IRC at")
    garbage(int(hydra.wait_for(r"--listen: listening on \D*127.0.0.1:(\d+)")[1]))
    told += ask(int(hydra.wait_for(r"--metrics: listening on 127.0.0.1:(\d+)")[1]), "/metrics")
    status = start("fyrehose", "hydra", "status", "--control", f"unix:{tmp_path / 'hydra-control'}")
    assert status.finish() == 0
    told += status.out.encode() + status.err.encode()
    for service in (parcels, freenet, hydra):
        told += seen(service)
        service.signal(signal.SIGTERM).finish()
        told += service.out.encode() + service.err.encode()
    told += written(tmp_path, secret.path, token.path, password.path)
    assert b"hello" in told
    for one in (secret, token, password):
        assert not one.is_in(told)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_no_option_takes_a_secret_value(name: str) -> None:
    options = MAKERS[name].options()
    words = {word.rstrip("=") for word in options.longOpt}
    assert [
        word for word in words if re.search("secret|token|password|key$", word) and not word.endswith("-file")
    ] == []


@pytest.mark.parametrize(
    "words",
    [
        ["fyrehose-backbone", "--interface=0.0.0.0"],
        ["fyrehose-query", "--directory=.", "--http=tcp:8480:interface=0.0.0.0"],
        ["fyrehose-frontend", "--http=tcp:8481:interface=0.0.0.0"],
        ["fyrehose-frontend", "--lines=tcp:8482:interface=0.0.0.0"],
        ["parcels-node", "--name=a", "--advertise=a:1", "--listen=tcp:7878:interface=0.0.0.0"],
        ["parcels-node", "--name=a", "--http=tcp:8878:interface=0.0.0.0"],
        ["freenet-node", "--listen=tcp:6180:interface=0.0.0.0"],
        ["freenet-node", "--control=tcp:6181:interface=0.0.0.0"],
    ],
)
def test_listening_beyond_loopback_requires_a_secret_or_open(words: list[str]) -> None:
    with pytest.raises(UsageError, match="loopback"):
        MAKERS[words[0]].options().parseOptions(words[1:])
