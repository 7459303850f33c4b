"""Captured traffic of real services, in the words of ``fyrehose dump`` and in the fields of tshark."""

from __future__ import annotations

import json
import re
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.running.programs import BIN, Program, Start
from suite.spaces import PROGRAMS, Space, refusal
from suite.tshark import Tshark

from fyrehose_twisted.freenet.wire.codec import MessageCode
from fyrehose_twisted.hydra.transports.udp.datagrams import ABORT, DATA

pytestmark = pytest.mark.extended

FindProgram = Callable[[str, str], Path]

KEY = "name:weather"


class Recorder:
    """Network namespaces, programs in them, and their captures."""

    def __init__(self, start: Start, directory: Path) -> None:
        self._start = start
        self.directory = directory
        self._spaces: list[Space] = []
        (directory / "secret").write_text("swordfish-swordfish")
        (directory / "secret").chmod(0o600)

    def space(self) -> Space:
        self._spaces.append(Space())
        return self._spaces[-1]

    def run(self, space: Space, program: str, *arguments: object) -> Program:
        """Start one of the project's programs in a namespace."""
        return self._start(*space.enter, BIN / program, *arguments, of_ours=False, cwd=self.directory)

    def service(self, space: Space, name: str, *options: object) -> Program:
        """Start a service in a namespace and wait until it runs."""
        service = self.run(space, "twistd", "-n", "--pidfile=", name, *options)
        service.wait_for("starting on|Starting factory|Starting protocol|started|listening|role|mode|serv")
        return service

    def capture(self, space: Space, device: str, *options: str) -> tuple[Program, Path]:
        """Start a capture, which ends when it is interrupted."""
        path = self.directory / f"{'-'.join((device, *options))}.pcap"
        own = (
            "-i",
            device,
            "--immediate-mode",
            "-s",
            "66000",
            "-B",
            "131072",
            "-U",
            "-Z",
            "root",
            "-w",
            path,
            *options,
        )
        tcpdump = self._start(*space.enter, "tcpdump", *own, of_ours=False)
        tcpdump.wait_until(lambda: "listening on" in tcpdump.err)
        return tcpdump, path

    def close(self) -> None:
        for space in self._spaces:
            space.close()


@pytest.fixture
def recorder(start: Start, program: FindProgram, tmp_path: Path) -> Iterator[Recorder]:
    for name, package in (*PROGRAMS.items(), ("iptables", "iptables"), ("tcpdump", "tcpdump")):
        program(name, package)
    if why := refusal():
        pytest.skip(why)
    made = Recorder(start, tmp_path)
    yield made
    made.close()


@pytest.fixture
def tshark(program: FindProgram, tmp_path: Path) -> Tshark:
    return Tshark(program("tshark", "tshark"), tmp_path)


def dumped(start: Start, path: Path, *options: object) -> list[dict[str, Any]]:
    """Return what the command says of a capture."""
    dump = start("fyrehose", "dump", path, "--json", *options)
    assert dump.finish() == 0
    assert dump.err == ""
    return [json.loads(line) for line in dump.out.splitlines()]


def test_all_services_are_understood_alike_by_the_command_and_tshark(
    recorder: Recorder, start: Start, tshark: Tshark
) -> None:
    space = recorder.space()
    tcpdump, path = recorder.capture(space, "lo")
    secret, hydra = ("--secret-file", "secret"), ("--secret-file", "secret", "--timescale", "0.1")
    recorder.service(space, "fyrehose-backbone", *secret)
    recorder.service(space, "parcels-node", "--name", "a", "--bootstrap")
    recorder.service(space, "freenet-node", "--state", "f1", "--control", "tcp:6181")
    both = ("--listen", "tcp:6174:interface=127.0.0.1", "--listen", "udp:6174:interface=127.0.0.1")
    recorder.service(space, "hydra-node", "--tag", "a", "--bootstrap", *both, *hydra)
    local = ":interface=127.0.0.1"
    recorder.service(space, "parcels-node", "--name", "b", "--listen", f"tcp:7879{local}", "--peer", "127.0.0.1:7878")
    other = ("--listen", f"tcp:6182{local}", "--control", "tcp:6183", "--peer", "127.0.0.1:6180")
    recorder.service(space, "freenet-node", "--state", "f2", *other)
    for tag, port, link in (("b", 6190, "tcp"), ("c", 6192, "udp")):
        own = ("--listen", f"tcp:{port}{local}", "--control", f"tcp:{port + 1}", "--link", f"{link}:127.0.0.1:6174")
        recorder.service(space, "hydra-node", "--tag", tag, *own, *hydra)
    subscriber = recorder.run(space, "fyrehose", "sub", *secret, "--require-mac", "--from", "oldest", "--count", 200)
    packets = recorder.run(space, "fyrehose", "freenet", "subscribe", KEY, "--control", "tcp:6183", "--count", 2)
    lines = b"".join(b"%d\n" % number for number in range(200))
    assert recorder.run(space, "fyrehose", "pub", *secret).finish(lines) == 0
    assert subscriber.finish() == 0
    assert recorder.run(space, "fyrehose", "parcels", "publish", "--name", "p").finish(lines[:20]) == 0
    publish = ("publish", KEY, "--control", "tcp:6181", "--allow-no-subscribers")
    assert recorder.run(space, "fyrehose", "freenet", *publish).finish(b"one\ntwo\n") == 0
    assert packets.finish() == 0
    tcpdump.signal(signal.SIGINT)
    tcpdump.finish()

    # The dissectors recognise streams on other ports by their start.
    others = ("7879=parcels", "6182=freenet", "6190=hydra", "6192=hydra")
    said = dumped(start, path, *(f"--port={other}" for other in others))
    assert [line for line in said if "problem" in line] == []
    by_command = Counter((line["protocol"], line["kind"]) for line in said)
    by_tshark: Counter[tuple[str, str]] = Counter()
    names = {str(int(code)): code.name for code in MessageCode}
    carrier = {str(number): name for number, name in enumerate(CARRIER, 1)}
    fields = tshark.packets(path)
    for packet in fields:
        assert not [name for name in packet if name.endswith(".malformed")]
        by_tshark.update(("fyrehose", kind) for kind in packet.get("fyrehose.kind", ()))
        by_tshark.update(("hydra", kind) for kind in packet.get("hydra.command", ()))
        by_tshark.update(("hydra", carrier[kind]) for kind in packet.get("hydra_udp.kind", ()))
        by_tshark.update(("freenet", names[kind]) for kind in packet.get("freenet.kind", ()))
        by_tshark.update(("parcels", kind) for kind in packet.get("parcels.type", ()))
    assert by_command == by_tshark
    seen = {kind for _, kind in by_command}
    assert {
        "DELIVER",
        "PUSH",
        "KEEPALIVE",
        "STATUS",
        "KNOCK",
        "AUTH",
        "ACCEPT",
        "Publish",
        "Append",
    } <= seen
    # Packets go up to the root of the tree or down from it, whichever node that is.
    assert seen & {"SUBSCRIBE_DATA", "PUBLISH_DATA"}
    assert "swordfish" not in json.dumps(said)
    delivered = [line["fields"]["sequence"] for line in said if line.get("kind") == "DELIVER"]
    assert set(delivered) == set(range(1, 201))
    assert {int(number) for packet in fields for number in packet.get("fyrehose.seq", ())} == set(delivered)


CARRIER = ("INIT", "COOKIE", "OPEN", "ACCEPT", "REFUSE", "DATA", "FIN", "ABORT", "RESET")
assert (CARRIER[DATA - 1], CARRIER[ABORT - 1]) == ("DATA", "ABORT")


def test_captures_of_all_kinds_are_read_alike(recorder: Recorder, start: Start, program: FindProgram) -> None:
    space, path = recorder.space(), recorder.directory / "lo.pcapng"
    captures = [recorder.capture(space, "lo"), recorder.capture(space, "any", "-y", "LINUX_SLL")]
    captures.append(recorder.capture(space, "any", "-y", "LINUX_SLL2"))
    dumpcap = start(*space.enter, program("dumpcap", "wireshark-common"), "-i", "lo", "-w", path, of_ours=False)
    dumpcap.wait_until(lambda: "File: " in dumpcap.err)
    recorder.service(space, "fyrehose-backbone", "--port", "2424")
    assert recorder.run(space, "fyrehose", "ping", "-b", "127.0.0.1:2424", "--count", 5).finish() == 0
    dumpcap.wait_until(lambda: path.read_bytes().count(struct.pack(">H", 2424)) >= 10)
    for capture in (dumpcap, *(each for each, _ in captures)):
        capture.signal(signal.SIGINT)
        capture.finish()
    assert [path.read_bytes()[20] for _, path in captures] == [1, 113, 276 & 0xFF]
    assert path.read_bytes().startswith(b"\x0a\x0d\x0d\x0a")
    said = [
        [(line["source"], line["kind"], line["text"]) for line in dumped(start, each, "--port", "2424=fyrehose")]
        for each in (path, *(each for _, each in captures))
    ]
    assert [kind for _, kind, _ in said[0]].count("KEEPALIVE-ACK") >= 5
    assert said.count(said[0]) == len(said)


def test_losses_on_the_way_and_their_repair_are_noted(recorder: Recorder, start: Start, tshark: Tshark) -> None:
    router, sender, receiver = recorder.space(), recorder.space(), recorder.space()
    router.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    for number, other in enumerate((sender, receiver), 1):
        router.run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth", "netns", str(other.pid))
        router.prepare_device(f"v{number}", f"10.9.{number}.1/24")
        other.prepare_device("eth", f"10.9.{number}.2/24")
        other.run("ip", "route", "add", "default", "via", f"10.9.{number}.1")
    tcpdump, path = recorder.capture(receiver, "eth")
    secret = ("--secret-file", "secret")
    backbone = recorder.service(sender, "fyrehose-backbone", "--interface", "10.9.1.2", *secret)
    journal = ("fyrehose-journal", "-b", "10.9.1.2:2323", "--directory", ".", *secret)
    recorder.service(sender, *journal)
    subscriber = recorder.run(receiver, "fyrehose", "sub", "-b", "10.9.1.2:2323", *secret, "--count", 2_000)
    backbone.wait_for("joined", times=2)
    live = recorder.run(receiver, "fyrehose", "dump", "--interface", "eth", "--gaps")
    lose = ("-p", "udp", "--sport", "2323", "-m", "length", "--length", "70:90", "-m", "statistic", "--mode", "nth")
    router.run("iptables", "-A", "FORWARD", *lose, "--every", "50", "--packet", "0", "-j", "DROP")
    lines = b"".join(b"%d\n" % number for number in range(1, 2_001))
    assert recorder.run(sender, "fyrehose", "pub", "-b", "10.9.1.2:2323", *secret).finish(lines) == 0
    assert subscriber.finish() == 0
    assert subscriber.outputs[1] == lines
    live.wait_for("DELIVER 2000, ")
    live.signal(signal.SIGINT)
    assert live.finish() == 0
    tcpdump.signal(signal.SIGINT)
    tcpdump.finish()

    notes = [line["note"] for line in dumped(start, path, "--gaps") if "note" in line]
    missing = [note for note in notes if "still" not in note and "missing" in note]
    assert len(missing) >= 10
    assert Counter(re.sub(r"\D*:", "", note) for note in missing) == Counter(
        re.sub(r"\D*:", "", note) for note in notes if "repaired" in note
    )
    shown = tshark.run(path, "-Y", "fyrehose.gap", "-T", "fields", "-E", "aggregator=;", "-e", "_ws.expert.message")
    assert sorted(note for line in shown.splitlines() for note in line.split(";") if "missing" in note) == sorted(
        missing
    )
    assert re.search(r"^# \d+ missing: \d+", live.out, re.MULTILINE)
    assert re.search(r"^# \d+ repaired: \d+", live.out, re.MULTILINE)
    assert "not understood" not in live.out
