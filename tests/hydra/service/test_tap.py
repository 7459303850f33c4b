"""Options of ``twistd hydra-node`` and their error messages."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from twisted.python.usage import UsageError

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.config import LinkTarget, OverlongPolicy, Quorum, Timers
from fyrehose_twisted.hydra.irc.active import Channel
from fyrehose_twisted.hydra.irc.bots import Bot
from fyrehose_twisted.hydra.protocol import HydraProtocol
from fyrehose_twisted.hydra.service import tap
from fyrehose_twisted.hydra.service.config import HydraConfig
from fyrehose_twisted.hydra.service.service import HydraService
from fyrehose_twisted.hydra.service.storage import stream_uri
from fyrehose_twisted.journal.retention import parse_retention
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.net.options import ServerEndpoint, base, parse_server_endpoint

SECRET = b"a secret that is long enough"


class ApplicationProtocol(HydraProtocol):
    """Protocol class of an application."""


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text, mode in (
        ("secret", SECRET, 0o600),
        ("open", SECRET, 0o644),
        ("short", b"short", 0o600),
        ("two", b"one\ntwo", 0o600),
        ("empty", b" \n", 0o600),
    ):
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(mode)
    return tmp_path


def options_of(text: str) -> Any:
    options = tap.Options()
    options.parseOptions(["--tag", "a", "--bootstrap", *text.split()])
    return options


def service_of(text: str) -> HydraService:
    service: Any = tap.makeService(options_of(f"--listen 0 {text}"))
    return service  # type: ignore[no-any-return]


def refusal_of(text: str) -> str:
    with pytest.raises(SystemExit) as refused:
        tap.makeService(options_of(text))
    said = str(refused.value)
    assert said.startswith("hydra-node: ")
    assert "\n" not in said
    return said


def test_default_options_make_a_local_node() -> None:
    options = options_of("")
    assert options["config"] == HydraConfig(tag="a", bootstrap=True)
    assert options["listening"] == [ServerEndpoint("tcp:6174:interface=127.0.0.1", ("127.0.0.1", 6174), True)]
    assert (options["irc-config"], options["secret"], options["state-path"], options["directory"]) == (None,) * 4
    assert options["class"] is HydraProtocol


def test_all_node_options_are_parsed(tmp_path: Path) -> None:
    options = options_of(
        "--network trades --network-size 5 --timescale 0.5 --secret-file secret --listen tcp:7000:interface=0.0.0.0"
        " --udp-listen 0.0.0.0:7001 --link tcp:b:6174 --link tcp:b:6174 --link fifo:d --irc irc.example:6667"
        " --irc tls:irc.example:6697 --nick bot --channel #c --channel #d,key --irc-password-file short --irc-rate 2.5"
        " --irc-burst 7 --irc-patience 9 --irc-long refuse"
        " --sasl-account me --sasl-password-file short --state s --sync --journal j --retention 7d"
        " --control unix:c.sock --metrics 9100 --max-links 9 --no-guardian --bot fyrehose_twisted.hydra.irc.bots.Bot"
    )
    config = options["config"]
    assert (config.network, config.network_size, config.quorum, config.timers) == (
        "trades",
        5,
        Quorum.FIXED,
        Timers(0.5),
    )
    assert (config.irc_rate, config.irc_burst, config.max_links) == (2.5, 7, 9)
    assert (config.irc_patience, config.irc_long) == (9.0, OverlongPolicy.REFUSE)
    assert options["links"] == ["tcp:b:6174", "fifo:d"]
    assert options["secret"] == SECRET
    assert [one.description for one in options["listening"]] == [
        "tcp:7000:interface=0.0.0.0",
        "udp:7001:interface=0.0.0.0",
    ]
    irc = options["irc-config"]
    assert irc.servers == ("irc.example:6667", "tls:irc.example:6697")
    assert (irc.nick, irc.password, irc.sasl) == ("bot", "short", ("me", "short"))
    assert irc.channels == (Channel("#c"), Channel("#d", "key"))
    assert (options["state-path"], options["directory"]) == (tmp_path / "s", tmp_path / "j")
    assert options["journal-config"].retention == parse_retention("7d")
    assert options["control-listening"].description == "unix:c.sock:mode=600"
    assert options["metrics-listening"].description == "tcp:9100:interface=127.0.0.1"
    registry = options_of("--quorum registry")["config"]
    assert (registry.quorum, registry.network_size) == (Quorum.REGISTRY, None)


@pytest.mark.parametrize(
    ("text", "listening"),
    [
        ("7000", ServerEndpoint("tcp:7000:interface=127.0.0.1", ("127.0.0.1", 7000), True)),
        ("tcp:port=7000", ServerEndpoint("tcp:port=7000:interface=127.0.0.1", ("127.0.0.1", 7000), True)),
        ("tcp:7000:interface=192.0.2.1", ServerEndpoint("tcp:7000:interface=192.0.2.1", ("192.0.2.1", 7000), False)),
        (r"tcp6:7000:interface=\:\:", ServerEndpoint(r"tcp6:7000:interface=\:\:", ("::", 7000), False)),
        ("udp:7000", ServerEndpoint("udp:7000:interface=127.0.0.1", ("127.0.0.1", 7000), True, True)),
        ("udp:7000:0.0.0.0", ServerEndpoint("udp:7000:0.0.0.0", ("0.0.0.0", 7000), False, True)),
        ("unix:/run/x", ServerEndpoint("unix:/run/x:mode=600", None, True)),
        ("unix:/run/x:mode=660", ServerEndpoint("unix:/run/x:mode=660", None, True)),
        ("tcp:7000:interface=eth0", ServerEndpoint("tcp:7000:interface=eth0", ("eth0", 7000), False)),
    ],
)
def test_endpoint_without_an_interface_listens_on_loopback(text: str, listening: ServerEndpoint) -> None:
    assert parse_server_endpoint("listen", text, "tcp:6174", datagrams=True) == listening


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("--tag=", "--tag TAG is required"),
        ("--tag ~a", "is not one printable word"),
        ("--network a_b", "is not a name of letters"),
        ("--network-size 0", "--network-size 0 is outside 1 to 64"),
        ("--network-size x", "is not a whole number"),
        ("--quorum all", "choose fixed or registry"),
        ("--timescale 0", "--timescale 0 is outside 0.001 to 100"),
        ("--timescale nan", "is outside"),
        ("--timescale x", "is not a number"),
        ("--link tcp:b", "'tcp:b' is not a link"),
        ("--listen tcp:x", "--listen 'tcp:x' has no port"),
        ("--listen tcp:7000:interface=0.0.0.0", "is not on loopback: give --secret-file"),
        ("--udp-listen 0.0.0.0:7000", "--listen udp:7000:interface=0.0.0.0 is not on loopback"),
        ("--udp-listen 7000", "is not HOST:PORT"),
        ("--listen udp:1 --listen udp:2", "at most one UDP port"),
        ("--secret-file none", "secret file none cannot be read"),
        ("--secret-file open", "is accessible to all users; chmod 600 it"),
        ("--secret-file short", "needs at least 16"),
        ("--irc irc.example:6667", "--irc requires --channel CHANNEL"),
        ("--channel #c", "--channel requires --irc"),
        ("--nick a", "--nick requires --irc"),
        ("--irc irc.example --channel c", "is not a channel"),
        ("--irc x:1 --channel #c --nick #x", "is not a nick"),
        ("--irc x:1 --channel #c --sasl-account a", "require each other"),
        ("--irc x:1 --channel #c --irc-password-file two", "must contain one line with a password"),
        ("--irc x:1 --channel #c --irc-password-file empty", "must contain one line with a password"),
        ("--irc x:1 --channel #c --irc-password-file open", "is accessible to all users"),
        ("--irc-rate 0", "--irc-rate 0 is outside"),
        ("--irc-burst 0", "--irc-burst 0 is outside"),
        ("--irc-patience 0", "--irc-patience 0 is outside"),
        ("--irc-long cut", "choose split or refuse"),
        ("--sync", "--sync requires --state FILE"),
        ("--retention 7d", "--retention requires --journal DIR"),
        ("--journal j --retention x", "retention 'x'"),
        ("--control tcp:7000:interface=0.0.0.0", "sends lines to IRC in this node's name"),
        ("--control udp:7", "--control 'udp:7' is a UDP port, which cannot be used here; choose tcp:6175"),
        ("--control unix:", "names no socket"),
        ("--metrics x", "--metrics 'x': unknown endpoint type 'x'; choose one such as tcp:9100"),
        ("--protocol fyrehose_twisted.hydra.irc.bots.Bot", "is not a subclass of"),
        ("--protocol nothing.there", "cannot be imported"),
    ],
)
def test_invalid_options_are_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as wrong:
        options_of(text)
    assert complaint in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_node_without_peers_is_refused() -> None:
    with pytest.raises(UsageError, match="no peers: give --link"):
        tap.Options().parseOptions(["--tag", "a"])
    for enough in (["--bootstrap"], ["--link", "tcp:b:1"], ["--listen", "6174"], ["--udp-listen", "127.0.0.1:1"]):
        tap.Options().parseOptions(["--tag", "a", *enough])


def test_startup_errors_are_reported_by_make_service(taken: int, tmp_path: Path) -> None:
    assert f"--listen: cannot listen on 127.0.0.1:{taken}: Address already in use" in refusal_of(f"--listen {taken}")
    assert "--control: cannot listen" in refusal_of(f"--listen 0 --control {taken}")
    assert "--listen and --metrics are the same port" in refusal_of("--listen 45671 --metrics 45671")
    (tmp_path / "file").touch()
    assert "--state" in refusal_of("--listen 0 --state file/state")
    assert "--journal" in refusal_of("--listen 0 --journal file/journal")
    journal = open_journal(tmp_path / "j", stream_uri("default"))
    assert "in use by another process" in refusal_of("--listen 0 --journal j")
    journal.close()
    assert "--bot nothing.there cannot be imported" in refusal_of("--listen 0 --bot nothing.there")
    with socket.socket(type=socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        assert "--listen: cannot listen" in refusal_of(f"--listen udp:{bound.getsockname()[1]}")


def test_options_make_a_node_service_with_links_irc_and_bots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "subclass_named", lambda option, name, base: ApplicationProtocol)
    service = service_of(
        "--link tcp:b:6174 --link tcp:c:6174:legacy=yes --link udp:b:1 --irc x:1 --channel #c --protocol app.Ours"
        " --bot fyrehose_twisted.hydra.irc.bots.Bot --state s --journal j --control 0"
    )
    addresses: list[Address] = [("tcp:b:6174", 0), ("tcp:c:6174:legacy=yes", 0), ("udp:b:1", 0)]
    legacy = [False, True, False]
    assert service.config.targets == tuple(LinkTarget(*one) for one in zip(addresses, legacy, strict=True))
    assert service._dialer.dialable == ["tcp:b:6174", "udp:b:1"]
    assert service._guardian is not None
    assert isinstance(service._build_connection(), ApplicationProtocol)
    assert [type(bot) for bot in service._bots._bots] == [Bot]
    assert service_of("--link tcp:b:6174 --no-guardian")._guardian is None
    assert service_of("--link fifo:d")._guardian is None


class KeptBot(Bot):
    """Bot of a settings file."""


def settings_files(tmp_path: Path, channels: str = '["#c", "#d,key"]', bots: str = "[]", new: bytes = b"") -> str:
    (tmp_path / "settings.toml").write_text(f"channels = {channels}\nbots = {bots}\n")
    (tmp_path / "new").write_bytes(new)
    (tmp_path / "new").chmod(0o600)
    return "--irc x:1 --reload-file settings.toml --secret-file secret --accept-secret-file new"


def test_settings_come_from_their_file_instead_of_the_command_line(tmp_path: Path) -> None:
    options = options_of(settings_files(tmp_path) + " --channel #e --bot no.Such")
    assert options["irc-config"].channels == (Channel("#c"), Channel("#d", "key"))
    assert (options["bots"], options["config"].other_secrets) == ([], ())


def test_reload_reads_secrets_channels_and_bots_and_keeps_loaded_bots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(settings_files(tmp_path, bots=f'["{__name__}.KeptBot"]'))
    (bot,) = options.load_bots()
    monkeypatch.chdir("/")  # A daemon may have another working directory.
    new = b"a new secret that is long enough"
    settings_files(tmp_path, '["#e"]', f'["{__name__}.KeptBot", "fyrehose_twisted.hydra.irc.bots.Bot"]', new)
    settings = options.reload()
    assert (settings.secret, settings.other_secrets, settings.channels) == (SECRET, (new,), (Channel("#e"),))
    assert settings.bots[0] is bot
    assert [type(one).__name__ for one in settings.bots] == ["KeptBot", "Bot"]
    (tmp_path / "new").unlink()
    (tmp_path / "secret").write_bytes(new)
    assert (options.reload().secret, options.reload().other_secrets) == (new, ())


@pytest.mark.parametrize(
    ("channels", "bots", "new", "why"),
    [
        ("[]", "[]", b"", "channels is a list of texts"),
        ('["c"]', "[]", b"", "'c' is not a channel"),
        ('["#c"]', '["no.Such"]', b"", "--bot no.Such cannot be imported"),
        ('["#c"]', '"x"', b"", "bots is a list of texts"),
        ('["#c"]', "[]", b"short", "at least 16"),
    ],
)
def test_invalid_settings_are_refused_on_reload(tmp_path: Path, channels: str, bots: str, new: bytes, why: str) -> None:
    options = options_of(settings_files(tmp_path))
    settings_files(tmp_path, channels, bots, new)
    with pytest.raises(ConfigurationError, match=why):
        options.reload()


def test_another_secret_requires_a_secret() -> None:
    with pytest.raises(UsageError, match="--accept-secret-file requires --secret-file"):
        options_of("--accept-secret-file new")
