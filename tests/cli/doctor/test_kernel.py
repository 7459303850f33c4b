from __future__ import annotations

from errno import EACCES, ENOBUFS
from pathlib import Path

import pytest

from fyrehose_twisted.cli.doctor import kernel
from fyrehose_twisted.cli.doctor.finding import Level
from fyrehose_twisted.cli.doctor.kernel import (
    SocketBuffers,
    UdpCounters,
    assess_buffers,
    assess_drops,
    format_size,
    parse_socket_drops,
    parse_udp_counters,
)

MIB = 2**20

SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 1000 7 30 900 20 0 10 0 0
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 0 0 0 0 0 0 0 0 0
"""

SOCKETS = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  511: 0100007F:0913 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 40345 2 0000000000000000 12
  512: 0100007F:9999 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 40346 2 0000000000000000 0
  513: 0200007F:0913 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 40347 2 0000000000000000 3
  514: torn
"""


def test_granted_socket_buffers_are_ok() -> None:
    found = assess_buffers(SocketBuffers(4 * MIB, 4 * MIB), 4 * MIB, {"rmem_max": "16 MiB"})
    assert (found.level, found.advice) == (Level.OK, None)
    assert found.found == "4 MiB requested and granted in each direction (net.core.rmem_max 16 MiB)"


@pytest.mark.parametrize(
    ("given", "said", "settings"),
    [
        (SocketBuffers(212_992, 4 * MIB), "208 KiB to receive of 4 MiB", "net.core.rmem_max=4194304,"),
        (SocketBuffers(4 * MIB, 212_992), "208 KiB to send of 4 MiB", "net.core.wmem_max=4194304,"),
        (
            SocketBuffers(212_992, 212_992),
            "208 KiB to receive and 208 KiB to send of 4 MiB",
            "net.core.rmem_max=4194304 net.core.wmem_max=4194304,",
        ),
    ],
)
def test_small_socket_buffers_are_a_warning_with_sysctl_advice(given: SocketBuffers, said: str, settings: str) -> None:
    found = assess_buffers(given, 4 * MIB, {})
    assert found.level == Level.WARN
    assert said in found.found
    assert found.advice is not None
    assert f"sysctl -w {settings}" in found.advice


def test_refused_socket_buffers_are_wrong() -> None:
    found = assess_buffers(SocketBuffers(0, 0, ENOBUFS), 4 * MIB, {})
    assert found.level == Level.WRONG
    assert "ENOBUFS" in found.found
    assert found.advice == "as root: sysctl kern.ipc.maxsockbuf=8388608"
    assert (
        assess_buffers(SocketBuffers(0, 0, EACCES), 4 * MIB, {}).advice == "check the kernel's limits on socket buffers"
    )


def test_udp_counters_are_parsed() -> None:
    assert parse_udp_counters(SNMP) == UdpCounters(received=1000, buffer_errors=20, errors=30)


@pytest.mark.parametrize("text", ["", "Udp: InDatagrams\n", SNMP.replace("RcvbufErrors", "Other"), "Udp: \nUdp: \n"])
def test_missing_udp_counters_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="/proc/net/snmp"):
        parse_udp_counters(text)


def test_socket_drops_are_summed_per_port() -> None:
    assert parse_socket_drops(SOCKETS) == {2323: 15}


@pytest.mark.parametrize(
    ("before", "after", "lost", "level", "said", "advised"),
    [
        (UdpCounters(100, 0, 0), UdpCounters(110, 0, 0), {}, Level.OK, "0 of 110 datagrams", None),
        (UdpCounters(10**6, 900, 900), UdpCounters(10**6, 900, 900), {}, Level.OK, "900 of 1,000,900", None),
        (UdpCounters(1000, 20, 30), UdpCounters(1000, 20, 30), {}, Level.OK, "10 were invalid", "check again"),
        (
            UdpCounters(1000, 20, 20),
            UdpCounters(1000, 23, 23),
            {},
            Level.WARN,
            "3 of them during this check",
            "larger buffers",
        ),
        (
            UdpCounters(1000, 20, 20),
            UdpCounters(1000, 20, 20),
            {2323: 15},
            Level.WARN,
            "2323 lost 15",
            "larger buffers",
        ),
        (
            UdpCounters(10**6, 9, 9),
            UdpCounters(10**6, 9, 9),
            {1: 1, 2: 2, 3: 5, 4: 4},
            Level.WARN,
            "3 lost 5, 4 lost 4, 2 lost 2 and 1 other lost some",
            "larger buffers",
        ),
    ],
)
def test_udp_drops_are_assessed(
    before: UdpCounters, after: UdpCounters, lost: dict[int, int], level: Level, said: str, advised: str | None
) -> None:
    found = assess_drops(before, after, lost)
    assert found.level == level
    assert said in found.found
    assert (found.advice is None) if advised is None else (advised in str(found.advice))


def test_udp_drops_are_unknown_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel, "SNMP", tmp_path / "snmp")
    monkeypatch.setattr(kernel, "SOCKETS", (tmp_path / "udp",))
    monkeypatch.setattr(kernel, "LIMITS", tmp_path)
    found = kernel.check_drops(None)
    assert found.level == Level.WARN
    assert found.found.startswith("cannot be known: ")
    assert kernel.read_limits() == {}


def test_socket_buffer_limits_are_read_from_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel, "LIMITS", tmp_path)
    (tmp_path / "rmem_max").write_text("212992\n")
    (tmp_path / "wmem_max").write_text("what\n")
    assert kernel.read_limits() == {"rmem_max": "208 KiB", "wmem_max": "what"}


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (4 * MIB, "4 MiB"), (1000 * MIB, "1000 MiB"), (3 * 2**41, "6 TiB")],
)
def test_sizes_are_formatted_with_binary_units(count: int, said: str) -> None:
    assert format_size(count) == said
