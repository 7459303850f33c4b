from __future__ import annotations

import re
from errno import EADDRINUSE, EADDRNOTAVAIL
from pathlib import Path

import pytest

from fyrehose_twisted.cli.doctor import ports
from fyrehose_twisted.cli.doctor.finding import Level
from fyrehose_twisted.cli.doctor.ports import (
    DEFAULT_PORTS,
    OccupiedPort,
    Port,
    PortOwner,
    assess_ports,
    parse_sockets,
    probe_ports,
)
from fyrehose_twisted.freenet.service import config as freenet
from fyrehose_twisted.fyrehose import service as fyrehose
from fyrehose_twisted.hydra.service import config as hydra
from fyrehose_twisted.parcels.cli import parser as parcels_command
from fyrehose_twisted.parcels.service import config as parcels

SOURCE = Path(fyrehose.__file__).parents[2]
BACKBONE, METRICS = Port(2323, "udp", "backbone"), Port(9100, "tcp", "metrics")

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:238C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1681 1 0000 100 0 0 10 0
   1: 0100007F:238C 0100007F:B0B8 01 00000000:00000000 00:00000000 00000000     0        0 1682 1 0000 100 0 0 10 0
   2: 0100007F:0016 0100007F:B0B9 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0000
   3: torn
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr
   0: 00000000000000000000000000000000:238C 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 1690 1 0
"""


def test_the_default_ports_are_those_of_the_services() -> None:
    by_option = {("udp", fyrehose.DEFAULT_PORT)}
    by_option |= {("tcp", service.DEFAULT_PORT) for service in (hydra, freenet, parcels)}
    by_option.add(("tcp", int(parcels_command.HTTP.rpartition(":")[2])))
    sources = [*SOURCE.rglob("*tap.py"), *SOURCE.rglob("options/*.py")]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    in_texts = {(kind, int(number)) for kind, number in re.findall(r"\b(tcp|udp):(\d{2,5})\b", texts)}
    in_texts.discard(("tcp", 8080))  # An example port in a help text.
    listed = {(port.kind, port.number) for port in DEFAULT_PORTS}
    assert listed == by_option | in_texts
    assert len(listed) == len(DEFAULT_PORTS)


def test_free_ports_are_one_finding() -> None:
    (found,) = assess_ports([BACKBONE, METRICS], [])
    assert (found.level, found.found) == (Level.OK, "free on 127.0.0.1: 2323/udp (backbone), 9100/tcp (metrics)")


@pytest.mark.parametrize(
    ("error", "owner", "level", "said"),
    [
        (EADDRINUSE, None, Level.WARN, "2323/udp (backbone) is in use by an unknown process"),
        (EADDRINUSE, PortOwner(7, "/usr/sbin/other -x"), Level.WARN, "in use by process 7: other -x"),
        (
            EADDRINUSE,
            PortOwner(7, "/x/bin/python /x/bin/twistd fyrehose-backbone"),
            Level.OK,
            "in use by process 7: python twistd fyrehose-backbone",
        ),
        (EADDRNOTAVAIL, None, Level.WRONG, "cannot be bound on 127.0.0.1: Cannot assign"),
    ],
)
def test_an_occupied_port_is_reported_with_its_owner(
    error: int, owner: PortOwner | None, level: Level, said: str
) -> None:
    (found,) = assess_ports([], [OccupiedPort(BACKBONE, error, owner)])
    assert found.level == level
    assert said in found.found


def test_socket_inodes_are_parsed_by_port() -> None:
    assert parse_sockets(TCP) == {9100: {1681, 1682}}
    assert parse_sockets(TCP6) == {9100: {1690}}
    assert parse_sockets("") == {}


@pytest.mark.parametrize(
    ("inode", "cmdline", "owner"),
    [
        (1681, b"twistd\0parcels-node\0", PortOwner(42, "twistd parcels-node")),
        (1690, b"twistd\0parcels-node\0", PortOwner(42, "twistd parcels-node")),
        (1690, b"", PortOwner(42, "short")),
        (9999, b"twistd\0", None),
    ],
)
def test_the_owner_of_an_occupied_port_is_found_in_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inode: int, cmdline: bytes, owner: PortOwner | None
) -> None:
    for name, text in (("tcp", TCP), ("tcp6", TCP6)):
        (tmp_path / "net").mkdir(exist_ok=True)
        (tmp_path / "net" / name).write_text(text)
    (tmp_path / "41").mkdir()  # A process of another user, or one that has ended.
    (tmp_path / "42" / "fd").mkdir(parents=True)
    (tmp_path / "42" / "cmdline").write_bytes(cmdline)
    (tmp_path / "42" / "comm").write_bytes(b"short\n")
    (tmp_path / "42" / "fd" / "3").symlink_to(f"socket:[{inode}]")
    (tmp_path / "42" / "fd" / "4").touch()
    monkeypatch.setattr(ports, "PROC", tmp_path)
    monkeypatch.setattr(ports, "probe_port", lambda port: EADDRINUSE if port == METRICS else None)
    assert probe_ports([BACKBONE, METRICS]) == ([BACKBONE], [OccupiedPort(METRICS, EADDRINUSE, owner)])


def test_an_occupied_port_has_no_owner_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "PROC", tmp_path / "none")
    monkeypatch.setattr(ports, "probe_port", lambda port: EADDRINUSE)
    assert probe_ports([BACKBONE]) == ([], [OccupiedPort(BACKBONE, EADDRINUSE, None)])
