"""Fixtures that run services, browsers and IRC servers as processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from integration.running.backbone import MakePeer, Peer, RunningBackbone, StartBackbone
from integration.running.browser import SCREENSHOTS, Browser, OpenBrowser, OpenPage, StrangePage
from integration.running.clock import SkippingClock
from integration.running.cluster import RunningCluster, RunningNode, StartCluster
from integration.running.control import Asking
from integration.running.irc import Ircd, IrcStranger, JoinIrc, StartIrcd
from integration.running.journal import (
    Check,
    CheckTold,
    Load,
    RunningJournal,
    StartJournal,
    StartLoad,
    compare_told,
)
from integration.running.programs import BIN, DEADLINE, AwaitTrue, InTime, Program, Start, wait_until
from integration.running.query import Canned, CannedMetrics, StartQuery
from integration.running.relay import Carry, Relay, StartRelay
from suite.marionette import Firefox
from twisted.internet.defer import maybeDeferred

from fyrehose_twisted.effects import Address


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program, found beside the interpreter, and kill it after the test."""
    programs: list[Program] = []

    def started(name: str, *arguments: object, of_ours: bool = True, **options: Any) -> Program:
        programs.append(Program(str(BIN / name) if of_ours else name, *map(str, arguments), **options))
        return programs[-1]

    yield started
    for program in programs:
        program.destroy()
        print(program)  # Shown only for a failed test.


@pytest.fixture
def launch(start: Start, tmp_path: Path) -> Start:
    """Run ``twistd fyrehose-backbone`` in the foreground without waiting; its state file is in ``tmp_path``."""

    def launched(*options: object, **more: Any) -> Program:
        return start(
            "twistd", "-n", "--pidfile=", "fyrehose-backbone", *options, cwd=tmp_path, stderr=subprocess.STDOUT, **more
        )

    return launched


@pytest.fixture
def start_backbone(launch: Start, free_port: Callable[[], int]) -> StartBackbone:
    """Start a backbone on a free port and wait until it listens.

    The port stays free after its exit: the kernel does not assign it to a process that requests any port.
    """

    def started(*options: object, port: int | None = None, settle: float = 0, **more: Any) -> RunningBackbone:
        port = free_port() if port is None else port
        return RunningBackbone(launch("--port", port, "--settle-time", settle, *options, **more))

    return started


@pytest.fixture
def backbone(start_backbone: StartBackbone, free_port: Callable[[], int]) -> RunningBackbone:
    """Return a backbone with metrics whose stream starts at 1. No client gets its port while it restarts."""
    return start_backbone("--metrics", "tcp:0", port=free_port())


@pytest.fixture
def launch_journal(start: Start, tmp_path: Path) -> Start:
    """Run ``twistd fyrehose-journal`` in the foreground without waiting."""

    def launched(*options: object, **more: Any) -> Program:
        return start(
            "twistd", "-n", "--pidfile=", "fyrehose-journal", *options, cwd=tmp_path, stderr=subprocess.STDOUT, **more
        )

    return launched


@pytest.fixture
def start_journal(launch_journal: Start, tmp_path: Path) -> StartJournal:
    """Start a journal in a directory of ``tmp_path`` and wait until it runs."""

    def started(backbone: RunningBackbone, root: str | Path, *options: object) -> RunningJournal:
        return RunningJournal(launch_journal, backbone, tmp_path / root, options)

    return started


@pytest.fixture
def check(start: Start) -> Check:
    """Check a whole journal with ``fyrehose journal check`` and return its output: nothing is damaged."""

    def checked(journal: RunningJournal) -> str:
        program = start("fyrehose", "journal", "check", journal.path)
        assert program.finish() == 0, program
        assert "; nothing is damaged" in program.out, program
        return program.out

    return checked


@pytest.fixture
def check_told() -> CheckTold:
    """Compare publish results with the stream; see :func:`compare_told`."""
    return compare_told


@pytest.fixture
def load(start: Start) -> Iterator[StartLoad]:
    """Publish without end until the test is over."""
    loads: list[Load] = []

    def loaded(backbone: RunningBackbone, size: int = 200) -> Load:
        loads.append(Load(start, backbone, size))
        return loads[-1]

    yield loaded
    for one in loads:
        one.destroy()


@pytest.fixture
def peer() -> Iterator[MakePeer]:
    """Return a factory of peers of a backbone."""
    peers: list[Peer] = []

    def made(backbone: RunningBackbone | Address, host: str = "127.0.0.1") -> Peer:
        peers.append(Peer(backbone.address if isinstance(backbone, RunningBackbone) else backbone, host))
        return peers[-1]

    yield made
    for made_peer in peers:
        made_peer.socket.close()


@pytest.fixture
def in_time() -> InTime:
    """Wait for a Deferred, at most until the deadline."""

    def waiting(deferred: Any) -> Any:
        from twisted.internet import reactor

        return deferred.addTimeout(DEADLINE, reactor)

    return waiting


@pytest.fixture
def leaving() -> Iterator[list[Any]]:
    """Return a list of started protocols, which leave after the test."""
    protocols: list[Any] = []
    yield protocols
    for protocol in protocols:
        pytest_twisted.blockon(protocol.leave())


@pytest.fixture
def relay() -> Iterator[StartRelay]:
    """Put a relay between a backbone and its clients. Request it before `leaving`, so that their goodbyes pass it."""
    relays: list[Relay] = []

    def made(backbone: Address, carry: Carry) -> Relay:
        relays.append(Relay(backbone, carry))
        return relays[-1]

    yield made
    for one in relays:
        for port in one.ports:
            pytest_twisted.blockon(maybeDeferred(port.stopListening))


@pytest.fixture
def open_browser(browser: Callable[..., list[str]]) -> Iterator[OpenBrowser]:
    """Return a function that opens a page in a browser with a real clock; skip the test without a browser."""
    opened: list[Browser] = []

    def made() -> Browser:
        opened.append(Browser([option for option in browser() if "virtual-time" not in option]))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


@pytest.fixture
def start_query(start: Start) -> StartQuery:
    """Start the query service; return the program and its URL."""

    def started(directory: Path, *options: object) -> tuple[Program, str]:
        service = ("fyrehose-query", "--directory", directory, "--http=tcp:0", *options)
        program = start("twistd", "--nodaemon", "--pidfile=", *service)
        place = program.wait_for(r"--http: listening on (\S+)")[1]
        return program, f"http://{place}/"

    return started


@pytest.fixture
def canned() -> Iterator[Canned]:
    """Return a function that serves a page of constant metrics; see
    :meth:`~integration.running.query.CannedMetrics.add`."""
    served = CannedMetrics()
    yield served.add
    served.close()


@pytest.fixture(params=["chromium", pytest.param("firefox", marks=pytest.mark.soak(seconds=60))])
def open_page(request: pytest.FixtureRequest) -> OpenPage:
    """Return a function that opens a page in each of the browsers in turn; skip the test where it is missing."""
    opened: OpenPage = request.getfixturevalue("open_browser" if request.param == "chromium" else "open_firefox")
    return opened


@pytest.fixture
def open_firefox(
    program: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Firefox]]:
    """Return a function that opens a page in Firefox; skip the test if it is not installed."""
    opened: list[Firefox] = []

    def made() -> Firefox:
        path = program("firefox-esr", "firefox-esr")
        opened.append(Firefox(path, tmp_path_factory.mktemp("firefox"), SCREENSHOTS))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


@pytest.fixture
def make_nodes(start: Start, free_port: Callable[[], int], tmp_path: Path) -> StartCluster:
    """Make nodes of one cluster without starting them; the first one bootstraps.

    Options of all of them may be a function of the node.
    """

    def made(*names: str, options: Callable[[RunningNode], list[object]] = lambda node: []) -> RunningCluster:
        cluster = RunningCluster()

        def options_of(node: RunningNode) -> list[object]:
            common: list[object] = ["--listen", f"tcp:{node.port}", "--http", f"tcp:{node.http_port}"]
            for other in cluster.values():
                if other is not node:
                    common += ["--peer", other.address]
            if node.name == names[0]:
                common.append("--bootstrap")
            return [*common, *options(node)]  # The last of several equal options takes effect.

        for name in names:
            cluster[name] = RunningNode(start, name, (free_port(), free_port()), tmp_path, options_of)
        return cluster

    return made


@pytest.fixture
def start_cluster(make_nodes: StartCluster) -> StartCluster:
    """Start nodes of one cluster and wait until all are members."""

    def started(*names: str, **more: Any) -> RunningCluster:
        cluster = make_nodes(*names, **more)
        for node in cluster.values():
            node.start()
        cluster.wait_to_work()
        return cluster

    return started


@pytest.fixture
def await_true() -> AwaitTrue:
    """Wait for a condition, by polling."""
    return wait_until


@pytest.fixture
def skipping_clock() -> type[SkippingClock]:
    """Return a clock that the test advances."""
    return SkippingClock


@pytest.fixture
def asking() -> type[Asking]:
    """Return a function that connects to a control port."""
    return Asking


@pytest.fixture
def start_ircd(start: Start, free_port: Callable[[], int], program: Callable[[str, str], Path]) -> Iterator[StartIrcd]:
    """Return a function that starts an IRC server; skip the test if it is not installed."""
    roots: list[Path] = []

    def started(kind: str, certificate: tuple[Path, Path] | None = None, *, holds_back: bool = False) -> Ircd:
        # The PATH of an ordinary user lacks sbin.
        path = shutil.which(kind, path=f"{os.environ['PATH']}:/usr/sbin") or program(kind, kind)
        # Other users cannot read pytest's directories, and ircd-hybrid does not run as root.
        roots.append(Path(tempfile.mkdtemp(prefix="ircd-")))
        roots[-1].chmod(0o777)
        ports = free_port(), free_port()
        return Ircd(start, kind, path, ports, roots[-1], certificate, holds_back=holds_back).start()

    yield started
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def irc_stranger() -> Iterator[JoinIrc]:
    """Return a function that connects an IRC client during the test."""
    strangers: list[IrcStranger] = []

    def made(ircd: Ircd, nick: str, channel: str = "") -> IrcStranger:
        strangers.append(IrcStranger(ircd.port, nick, channel))
        return strangers[-1]

    yield made
    for stranger in strangers:
        stranger.close()


@pytest.fixture
def certified(tmp_path: Path) -> tuple[Path, Path]:
    """Return the files of a self-signed certificate for 127.0.0.1 and of its key."""
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
    (tmp_path / "trusted").mkdir()
    certificate, private = tmp_path / "trusted" / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(made.public_bytes(encoding))
    private.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return certificate, private


@pytest.fixture
def open_strange_page(browser: Callable[..., list[str]], start: Start) -> Callable[..., Any]:
    """Open a page of another origin in a real browser and return its reports."""

    def opened(page: str, host: str = "127.0.0.1") -> Any:
        with closing(StrangePage(page, host)) as strange:
            command = [word for word in browser("--enable-logging=stderr", strange.url) if "virtual-time" not in word]
            # Without debugging, a headless browser exits once the page has loaded.
            command.insert(-1, "--remote-debugging-port=0")
            chromium = start(*command, of_ours=False, stdin=subprocess.DEVNULL)
            assert strange.wait(), chromium
        (told,) = strange.told
        return told

    return opened
