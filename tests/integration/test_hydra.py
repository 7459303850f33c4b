"""Hydra node processes and a real IRC server, whose channel always keeps a leader."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from integration.running.control import Asking
from integration.running.irc import Ircd, IrcStranger, JoinIrc, StartIrcd
from integration.running.programs import AwaitTrue, Program, Start
from integration.running.service_node import ControlledNode

from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.journal.reader import open_reader

DEADLINE = 120.0
"""Seconds after which an awaited event fails a test; reached only on failure."""
SCALE = 0.5
"""Time scale of all nodes, at which a node tolerates less than four seconds without the processor."""
FAST = 0.1
"""Time scale of a test that waits for timers, whoever leads."""
LEASE = 7.5 * FAST
SERVERS = [
    "ngircd",
    pytest.param("inspircd", marks=pytest.mark.soak(seconds=60)),
    pytest.param("ircd-hybrid", marks=pytest.mark.soak(seconds=60)),
]


class Node(ControlledNode):
    """``twistd hydra-node`` in a process of its own, restarted with the same options."""

    def __init__(
        self, start: Start, await_true: AwaitTrue, asking: type[Asking], ports: tuple[int, int], root: Path, tag: str
    ) -> None:
        self._start = start
        self.await_true = await_true
        self.root = root
        self.tag = tag
        self.port, control = ports
        super().__init__(asking, control)
        self.scale = SCALE
        self.options: list[object] = []

    def start(self) -> Node:
        """Start or restart it."""
        own = "--tag", self.tag, "--nick", self.tag, "--control", f"tcp:{self.control}", "--state", f"{self.tag}.state"
        command = "twistd", "-n", "--pidfile=", "hydra-node", *own, "--timescale", self.scale, *self.options
        self.program = self._start(*command, cwd=self.root, stderr=subprocess.STDOUT)
        return self

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.program.signal(number)

    def say(self, line: str, **more: Any) -> dict[str, Any]:
        """Submit a line and return its outcome."""
        with closing(self.asking()) as asking:
            return asking.ask(ask="say", line=line, id=1, **more)

    def wait_for(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return its status once a condition on it holds."""
        found: list[dict[str, Any]] = []

        def holds() -> bool:
            assert self.program.process.poll() is None, self.program
            found.append(self.status())
            return bool(found[-1]) and bool(condition(found[-1]))

        self.await_true(holds, lambda: f"{self.tag}: {found[-1]}\n{self.program}")
        return found[-1]

    def lines(self) -> list[bytes]:
        """Return the lines in its journal, which must have no writer any more, and count the missed ones."""
        found: list[bytes] = []
        with closing(open_reader(self.root / self.tag / "hydra-default")) as reader:
            for term in reader.epochs():
                bounds = reader.bounds(term)
                assert bounds is not None
                for block in reader.read(term, bounds.first, bounds.last):
                    found += [untag(payload)[1] for payload in block.payloads()]
        return found

    def missed(self) -> int:
        """Return the number of lines that its journal records as lost."""
        with closing(open_reader(self.root / self.tag / "hydra-default")) as reader:
            bounds = [(term, reader.bounds(term)) for term in reader.epochs()]
            losses = [reader.losses(term, one.first, one.last) for term, one in bounds if one is not None]
        return sum(last - first + 1 for loss in losses for first, last in loss)


class Network(dict[str, Node]):
    """Nodes by tag."""

    def leader(self, *among: Node) -> Node:
        """Return the node that is on IRC once all running nodes agree on the leader."""
        running = list(among) or list(self.values())
        states: list[dict[str, Any]] = []

        def have_agreed() -> bool:
            for node in running:
                assert node.program.process.poll() is None, node.program
            states[:] = [node.status() for node in running]
            return (
                all(state.get("role") in ("leader", "cohort") for state in states)
                and all(len(state["nodes"]) >= len(running) for state in states)
                and [state["irc"] for state in states if state["role"] == "leader"] == ["open"]
                and states[0]["leader"] is not None
                and len({state["leader"] for state in states}) == 1
            )

        running[0].await_true(have_agreed, lambda: "\n".join(map(str, [*states, *(node.program for node in running)])))
        return next(node for node, state in zip(running, states, strict=True) if state["role"] == "leader")

    def wait_for_guardian(self, node: Node) -> None:
        """Wait until the guardian of a node would drop it at once."""
        others = len(self) - 1

        def stands_by(state: dict[str, Any]) -> bool:
            return f"stands by for node {state['id']}, {others} of {others} links are ready" in node.program.out

        node.wait_for(stands_by)  # A node that rejoined has another id, and its guardian other links.


MakeNetwork = Callable[..., Network]


@pytest.fixture
def network(
    start: Start, await_true: AwaitTrue, asking: type[Asking], free_port: Callable[[], int], tmp_path: Path
) -> Callable[..., Network]:
    """Return a function that makes nodes without starting them. By default all are linked to all others over TCP."""

    def made(tags: str, *common: object, links: dict[str, list[str]] | None = None) -> Network:
        nodes = Network(
            {tag: Node(start, await_true, asking, (free_port(), free_port()), tmp_path, tag) for tag in tags}
        )
        for tag, node in nodes.items():
            others = [f"tcp:127.0.0.1:{other.port}" for other in nodes.values() if other is not node]
            node.options = ["--network-size", len(tags), "--listen", f"tcp:{node.port}", *common]
            for link in others if links is None else links.get(tag, []):
                node.options += ["--link", link]
            if tag == tags[0]:
                node.options.append("--bootstrap")
        return nodes

    return made


@pytest.fixture
def on_irc() -> Callable[..., list[object]]:
    """Return the options of a node that may connect to IRC."""
    fast = "--channel", "#c", "--irc-rate", 1_000, "--irc-burst", 1_000

    def options(*ircds: Ircd) -> list[object]:
        return [part for ircd in ircds for part in ("--irc", ircd.address)] + list(fast)

    return options


class Talker:
    """IRC client that says numbered lines in the channel without end."""

    def __init__(self, stranger: IrcStranger) -> None:
        self._stranger = stranger
        self._over = threading.Event()
        self.said = 0
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        while not self._over.wait(0.004):
            self.said += 1
            self._stranger.say(f"PRIVMSG #c :n {self.said}")

    def finish(self) -> int:
        """Stop; return the number of lines."""
        self._over.set()
        self._thread.join(DEADLINE)
        return self.said


def numbers(lines: list[bytes]) -> list[int]:
    """Return the numbers of a talker's lines."""
    return [int(found[1]) for line in lines if (found := re.search(rb" PRIVMSG #c :n (\d+)$", line))]


def hello(stranger: IrcStranger, follower: Program) -> None:
    """Say hello until the follower prints it, since a follower does not report when it starts to follow."""

    def is_printed() -> bool:
        stranger.say("PRIVMSG #c :hello to you")
        return follower.process.poll() is not None or "PRIVMSG #c :hello to you\n" in follower.out

    follower.wait_until(is_printed)


class Speaker:
    """Submits numbered lines to a node, one at a time, and records their outcomes."""

    def __init__(self, node: Node, name: str) -> None:
        self.outcomes: dict[str, str] = {}
        self._name = name
        self._over = threading.Event()
        self._asking = node.asking()
        self._thread = threading.Thread(target=self._speak, daemon=True)
        self._thread.start()

    def _speak(self) -> None:
        number = 0
        while not self._over.wait(0.01):
            number += 1
            text = f"{self._name} {number}"
            self.outcomes[text] = self._asking.ask(ask="say", line=f"PRIVMSG #c :{text}", id=number)["said"]

    def finish(self) -> dict[str, str]:
        """Stop; return outcomes by text."""
        self._over.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        self._asking.close()
        return self.outcomes


@pytest.fixture
def finishing() -> Iterator[list[Any]]:
    """Return a list of talkers and speakers to stop after the test."""
    running: list[Any] = []
    yield running
    for one in running:
        with suppress(Exception):
            one.finish()


def test_lines_are_relayed_from_and_to_irc(
    start: Start,
    start_ircd: StartIrcd,
    irc_stranger: JoinIrc,
    network: MakeNetwork,
    on_irc: Callable[..., list[object]],
) -> None:
    ircd = start_ircd("ngircd")
    stranger = irc_stranger(ircd, "stranger", "#c")
    nodes = network("ab", *on_irc(ircd))
    for node in nodes.values():
        node.scale = FAST
        node.start()
    leader = nodes.leader()
    other = next(node for node in nodes.values() if node is not leader)
    follower = start("fyrehose", "hydra", "follow", "--control", f"tcp:{other.control}", "--count", 1)
    number = 1
    while other.say(f"PRIVMSG #c :hello {number}")["said"] != "said":
        number += 1  # Uncertain after a change of the leader.
    stranger.wait_for(rb"^:[ab]!\S+ PRIVMSG #c :hello %d$" % number)
    hello(stranger, follower)
    assert follower.finish() == 0, follower
    assert follower.out.endswith("PRIVMSG #c :hello to you\n")
    for node in nodes.values():
        node.stop()


@pytest.mark.extended
@pytest.mark.parametrize("server", SERVERS)
def test_channel_keeps_a_leader_whichever_node_is_killed(
    server: str,
    start: Start,
    start_ircd: StartIrcd,
    irc_stranger: JoinIrc,
    network: MakeNetwork,
    on_irc: Callable[..., list[object]],
    finishing: list[Any],
) -> None:
    ircd = start_ircd(server)
    stranger = irc_stranger(ircd, "stranger", "#c")
    witness = irc_stranger(ircd, "witness", "#c")
    nodes = network("abc", *on_irc(ircd))
    for node in nodes.values():
        node.options += ["--journal", node.tag]
        node.start()
    first = nodes.leader()
    stranger.wait_for(rb"^:%b!\S+ JOIN :?#c" % first.tag.encode())
    one, other = (node for node in nodes.values() if node is not first)
    follower = start("fyrehose", "hydra", "follow", "--control", f"tcp:{other.control}")
    follower.process.stdin.close()
    for node in nodes.values():
        nodes.wait_for_guardian(node)

    # Lines are relayed both ways, and printed by the commands.
    said = start("fyrehose", "hydra", "say", "--control", f"tcp:{one.control}")
    assert said.finish(b"PRIVMSG #c :hello\nNOTICE #c :hydra\n") == 0, said
    stranger.wait_for(rb"^:%b!\S+ PRIVMSG #c :hello$" % first.tag.encode())
    stranger.wait_for(rb" NOTICE #c :hydra$")
    refused = start("fyrehose", "hydra", "say", "--control", f"tcp:{one.control}", "QUIT", ":bye")
    assert refused.finish() == 1
    assert "is not one of " in refused.err
    shown = start("fyrehose", "hydra", "status", "--control", f"tcp:{one.control}")
    assert shown.finish() == 0, shown
    assert f"network default of 3 nodes, seen from {one.tag} (" in shown.out
    assert re.search(rf" \({first.status()['id']}\) leads; 2 have to agree$", shown.out, re.MULTILINE), shown.out
    hello(stranger, follower)
    assert re.search(r":stranger!\S+ PRIVMSG #c :hello to you\n", follower.out)

    # Kill the first leader while clients talk.
    talker, speakers = Talker(stranger), {node: Speaker(node, f"from-{node.tag}") for node in (one, other)}
    finishing += [talker, *speakers.values()]
    follower.wait_for(r"PRIVMSG #c :n 50\n")
    killed = monotonic()
    first.kill()
    second = nodes.leader(one, other)
    stranger.wait_for(rb"^:%b!\S+ JOIN :?#c" % second.tag.encode())
    fast = monotonic() - killed
    rest = other if second is one else one
    stranger.wait_for(rb"^:%b!\S+ PRIVMSG #c :from-%b \d+$" % (second.tag.encode(), rest.tag.encode()))
    first.start()
    nodes.leader()

    # Stop the second one.
    outcomes = dict(speakers.pop(second).finish())
    at = len(stranger.lines)
    second.stop()
    third = nodes.leader(first, rest)
    stranger.wait_for(rb"^:%b!\S+ PRIVMSG #c :from-%b \d+$" % (third.tag.encode(), rest.tag.encode()))
    outcomes |= speakers.pop(rest).finish()
    with closing(rest.asking()) as asking:
        assert asking.ask(ask="follow") == {"following": True}
        total = talker.finish()
        stranger.say("PRIVMSG #c :that was all")
        while not asking.read().get("line", "").endswith("PRIVMSG #c :that was all"):
            pass
    last = [line for line in stranger.lines[at:] if line.startswith(b":%b!" % second.tag.encode())]
    assert [b" QUIT" in line for line in last] == [False] * (len(last) - 1) + [True], last
    for node in (first, rest):
        node.stop()

    # Each line of a node was said once, or its outcome is accurate.
    heard = Counter(line.split(b" :", 1)[1].decode() for line in stranger.matching(rb" PRIVMSG #c :from-"))
    for text, outcome in outcomes.items():
        assert heard[text] in {"said": (1,), "uncertain": (0, 1), "refused": (0,)}[outcome], (text, outcome)
    assert rest.missed() == 0, rest.program
    # No line from IRC is repeated, and a node that ran all the time has every line of any other node.
    records = {node.tag: numbers(node.lines()) for node in nodes.values()}
    for tag, found in records.items():
        assert found == sorted(set(found))
        more = sorted(set(found) - set(records[rest.tag]))
        assert not more, f"{tag} has {more}, {rest.tag} has not; {first.tag} led first, then {second.tag}, {third.tag}"
    # All lines said while a leader was in the channel, except the last ones received by the killed leader,
    # which no other node has.
    there, unheard, lost, last_lines, recorded = 0, 0, 0, 0, set(records[rest.tag])
    for line in witness.lines:
        if change := re.match(rb":([abc])!\S+ (JOIN|QUIT)", line):
            there += 1 if change[2] == b"JOIN" else -1
            if change[2] == b"QUIT":
                assert not last_lines or change[1] == first.tag.encode(), f"{last_lines} lines before {line!r}"
                lost, last_lines = lost + last_lines, 0
        for number in numbers([line]):
            unheard += not there
            if there and number not in recorded:
                last_lines += 1
            elif there:
                assert not last_lines, f"{last_lines} lines before line {number}, which is there"
    print(
        f"{server}: {fast:.2f} s from kill -9 to the next JOIN; of {total} lines that the stranger said, nobody was"
        f" there for {unheard}, {lost} went with who was killed, and 0 were doubled; what nodes said:"
        f" {dict(Counter(outcomes.values()))}"
    )
    assert last_lines == 0
    checked = start("fyrehose", "journal", "check", rest.tag, cwd=rest.root)
    assert checked.finish() == 0, checked
    assert "; nothing is damaged" in checked.out
    printed = start("fyrehose", "journal", "cat", f"{rest.tag}/hydra-default", cwd=rest.root)
    assert printed.finish() == 0, printed
    assert numbers(printed.outputs[1].splitlines()) == records[rest.tag]


@pytest.mark.soak(seconds=90)
def test_line_journals_of_all_nodes_can_be_verified(
    start: Start,
    start_ircd: StartIrcd,
    irc_stranger: JoinIrc,
    network: MakeNetwork,
    on_irc: Callable[..., list[object]],
    tmp_path: Path,
) -> None:
    ircd = start_ircd("ngircd")
    stranger = irc_stranger(ircd, "stranger", "#c")
    nodes = network("abc", *on_irc(ircd))
    for node in nodes.values():
        node.options += ["--journal", node.tag, "--retention", "1GB"]
        node.start()
    said = 0
    for _ in range(2):
        leader = nodes.leader()
        for _ in range(100):
            said += 1
            stranger.say(f"PRIVMSG #c :n {said}")
        state = leader.wait_for(lambda state: state["expected"] > 100)
        for node in nodes.values():
            node.wait_for(lambda own, state=state: own["expected"] == state["expected"])
        leader.kill()
        nodes.leader(*(node for node in nodes.values() if node is not leader))
        leader.start()
    nodes.leader()
    for node in nodes.values():
        node.stop()
    journals = [tmp_path / tag / "hydra-default" for tag in nodes]
    command = [
        Path(sys.executable).parent / "fyrehose-pipeline",
        "verify",
        *journals,
        "--master",
        "local[2]",
        "--quiet",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert "no payloads differ" in ran.stdout
    for node in nodes.values():
        assert numbers(node.lines()) == list(range(1, 201))


@pytest.mark.extended
def test_suspended_leader_says_nothing_after_its_lease(
    start_ircd: StartIrcd, irc_stranger: JoinIrc, network: MakeNetwork, on_irc: Callable[..., list[object]]
) -> None:
    ircd = start_ircd("ngircd")
    stranger = irc_stranger(ircd, "stranger", "#c")
    nodes = network("abc", *on_irc(ircd))
    for node in nodes.values():
        node.scale = FAST
        node.start()
    nodes.wait_for_guardian(nodes.leader())
    number, said = 0, ""
    while said != "said":
        # Uncertain after a change of the leader.
        number += 1
        asked, said = monotonic(), nodes["a"].say(f"PRIVMSG #c :before {number}")["said"]
    # The node that said it was the leader at that time.
    (said_before,) = stranger.wait_for(rb" PRIVMSG #c :before %d$" % number)
    first = nodes[said_before[1:2].decode()]
    others = [node for node in nodes.values() if node is not first]
    with closing(first.asking()) as asking:
        assert asking.ask(ask="status")["status"]
        first.signal(signal.SIGSTOP)
        for number in range(1, 51):
            asking.tell(ask="say", line=f"PRIVMSG #c :late {number}", id=number)
        second = nodes.leader(*others)
        # Its guardian sees that it is alive, so no other node leads before the promises expire: when it said its line,
        # its lease was younger than LEASE, and a promise lasts twice as long.
        assert monotonic() - asked > LEASE
        assert not re.search("exited without a DROP", first.program.out)
        stranger.wait_for(rb"^:%b!\S+ JOIN :?#c" % second.tag.encode())
        at, quits = len(stranger.lines), len(stranger.matching(rb"^:%b!\S+ QUIT" % first.tag.encode()))
        first.signal(signal.SIGCONT)
        answers = [asking.read() for _ in range(50)]
    stranger.wait_for(rb"^:%b!\S+ QUIT" % first.tag.encode(), quits + 1)
    nodes.leader()
    said = {answer["id"] for answer in answers if answer["said"] == "said"}
    if said:
        stranger.wait_for(rb" PRIVMSG #c :late %d$" % max(said))
    late = [line for line in stranger.lines[at:] if b" PRIVMSG #c :late " in line]
    # It may lead again, but first leaves without a message.
    own = [line for line in stranger.lines[at:] if line.startswith(b":%b!" % first.tag.encode())]
    assert re.match(rb":\S+ QUIT", own[0]), own
    assert {int(line.rsplit(b" ", 1)[1]) for line in late} >= said
    assert len(late) == len(set(late))
    for node in nodes.values():
        node.stop()


@pytest.mark.extended
def test_nodes_fail_over_to_the_next_server_despite_garbage_on_all_ports(
    start_ircd: StartIrcd, irc_stranger: JoinIrc, network: MakeNetwork, on_irc: Callable[..., list[object]]
) -> None:
    ircd, spare = start_ircd("ngircd"), start_ircd("ngircd")
    nodes = network("abc", *on_irc(ircd, spare))
    for node in nodes.values():
        node.start()
    first = nodes.leader()
    seed = 8
    rng = random.Random(seed)
    for node in nodes.values():
        for port in (node.port, node.control):
            for data in (
                rng.randbytes(5_000),
                b"KNOCK 0 x\r\nPING 999 x 7\r\nDROP 7\r\nKNOCK 4294967296\r\nRECV 0\r\nPONG\r\n" * 20,
                b"x" * 100_000,
                b'{"ask": "say"}\n[]\n{"ask": "say", "line": "PRIVMSG #c :x\\r\\nQUIT"}\n',
            ):
                address = "127.0.0.1", port
                with closing(socket.create_connection(address, DEADLINE)) as connection, suppress(OSError):
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65_536):
                        pass
    assert nodes.leader() is first

    there = irc_stranger(spare, "there", "#c")
    ircd.kill()
    there.wait_for(rb" JOIN :?#c")
    leader = nodes.leader()
    there.say("PRIVMSG #c :made it")
    for node in nodes.values():
        node.wait_for(lambda state: state["expected"] > 0)
    assert leader.say("PRIVMSG #c :so it seems")["said"] == "said"
    there.wait_for(rb"^:%b!\S+ PRIVMSG #c :so it seems$" % leader.tag.encode())
    assert all("QUIT" not in line.decode(errors="replace") for line in there.lines)
    for node in nodes.values():
        node.stop()


@pytest.mark.extended
def test_five_kinds_of_links_with_a_secret_form_one_network(
    start_ircd: StartIrcd,
    irc_stranger: JoinIrc,
    network: MakeNetwork,
    on_irc: Callable[..., list[object]],
    free_port: Callable[[], int],
    certified: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    ircd, between = start_ircd("ngircd"), start_ircd("ngircd")
    stranger = irc_stranger(ircd, "stranger", "#c")
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough")
    secret.chmod(0o600)
    certificate, key = certified
    nodes = network("abcdef", *on_irc(ircd), "--secret-file", secret, links={})
    a, b, c, d, e, f = nodes.values()
    encrypted = free_port()
    links = {
        a: f"tcp:127.0.0.1:{b.port}",
        b: f"udp:127.0.0.1:{c.port}",
        c: "fifo:c-d",
        d: f"irc:127.0.0.1:{between.port}:dora:emil:rate=500",
        e: f"irc:127.0.0.1:{between.port}:emil:dora:rate=500",
    }
    for node, link in links.items():
        node.options += ["--link", link]
    e.options += ["--link", f"tls:127.0.0.1:{encrypted}:trustRoots={certificate.parent}"]
    f.options += ["--listen", f"ssl:{encrypted}:interface=127.0.0.1:certKey={certificate}:privateKey={key}"]
    b.options += ["--link", f"tls:127.0.0.1:{encrypted}"]  # It does not trust the issuer of that certificate.
    c.options += ["--udp-listen", f"127.0.0.1:{c.port}"]
    d.options += ["--link", "fifo:c-d"]
    for node in nodes.values():
        node.start()
    leader = nodes.leader()
    stranger.say("PRIVMSG #c :from far away")
    for node in nodes.values():
        with closing(node.asking()) as asking:
            assert asking.ask(ask="follow") == {"following": True}
            asking.tell(ask="say", line=f"PRIVMSG #c :from {node.tag}", id=1)
            answers: list[dict[str, Any]] = []
            while not any("said" in one for one in answers) or not any("line" in one for one in answers):
                answers.append(asking.read())
            assert {"said": "said", "why": "", "id": 1} in answers
        stranger.wait_for(rb"^:%b!\S+ PRIVMSG #c :from %b$" % (leader.tag.encode(), node.tag.encode()))
    assert leader is a
    state = a.wait_for(lambda state: all(one["hops"] is not None for one in state["nodes"]))
    assert {one["tag"]: one["hops"] for one in state["nodes"]} == {tag: hops for hops, tag in enumerate("abcdef")}
    assert {one["neighbour"] for one in state["nodes"]} == {"", links[a]}
    b.program.wait_for(
        "hung up on 127.0.0.1: the connection failed before it was authenticated: certificate verify failed"
    )

    # A peer without the secret receives no protocol message.
    with closing(socket.create_connection(("127.0.0.1", b.port), DEADLINE)) as connection:
        said = connection.recv(65_536)
        connection.sendall(b"KNOCK 7 x\r\n")
        with suppress(ConnectionResetError):
            while data := connection.recv(65_536):
                said += data
    assert said.startswith(b"AUTH ")
    assert b"MEET" not in said
    for node in nodes.values():
        node.stop()


def test_invalid_node_option_is_reported_in_one_line(
    start: Start, free_port: Callable[[], int], tmp_path: Path
) -> None:
    wrong = start("twistd", "-n", "--pidfile=", "hydra-node", "--tag", "a", "--link", "nonsense", cwd=tmp_path)
    assert wrong.finish() == 1
    assert "'nonsense' is not a link" in wrong.out + wrong.err
    nobody = start("fyrehose", "hydra", "status", "--control", f"tcp:{free_port()}")
    assert nobody.finish() == 1
    assert re.fullmatch(r"fyrehose: no node at tcp:\d+: refused; .*\n", nobody.err)


def test_guardian_detects_the_exit_of_its_parent_only_by_the_kernel(start: Start, tmp_path: Path) -> None:
    """Neither a closed standard input nor SIGTERM ends a guardian before its node exits."""
    heard, accepted = b"", threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        code = (
            "import json, os, subprocess, sys, time\n"
            "guardian = subprocess.Popen([sys.executable, '-m', 'fyrehose_twisted.hydra.guardian.process'],"
            " stdin=subprocess.PIPE)\n"
            f"first = {{'parent': os.getpid(), 'secret': None, 'links': ['tcp:127.0.0.1:{port}'], 'scale': {SCALE}}}\n"
            "lines = [first, {'id': 4711}]\n"
            "guardian.stdin.write(b''.join(json.dumps(one).encode() + b'\\n' for one in lines))\n"
            "guardian.stdin.close()\n"
            "print('guardian', guardian.pid, flush=True)\n"
            "sys.stdin.read()\n"
        )
        parent = start(sys.executable, "-c", code, of_ours=False, cwd=tmp_path)
        number = int(parent.wait_for(r"guardian (\d+)")[1])
        listening.settimeout(DEADLINE)
        connection, _ = listening.accept()
        with closing(connection):
            connection.settimeout(DEADLINE)

            def more() -> bytes:
                data = connection.recv(4_096)
                assert data, f"the guardian hung up after {heard!r}"
                return data

            while b"\r\n" not in heard:
                heard += more()
            assert heard == b"KNOCK 4711 ~guardian\r\n"
            connection.sendall(b"HELLO 4711 1\r\n")
            accepted.set()
            for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(number, one)
            parent.signal(signal.SIGSTOP)
            # It sends keepalives, and nothing else.
            heard = b""
            while len(heard) < 4:
                connection.sendall(b"\r\n")
                heard += more()
            assert set(heard) == set(b"\r\n")
            parent.signal(signal.SIGKILL).process.wait(DEADLINE)
            heard = b""
            while data := connection.recv(4_096):
                heard += data
            assert heard.replace(b"\r\n\r\n", b"\r\n").lstrip() == b"DROP 4711 guardian\r\n"
