from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient
from fyrehose_twisted.fyrehose.service import client_table_file
from fyrehose_twisted.fyrehose.service.client_table_file import SLOT, ClientTableFile
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE, Dialect

PAGE = 4_096


def client(port: int, **options: Any) -> KnownClient:
    address = "192.0.2.7", port
    return KnownClient(address, address, 0, Dialect.V2, 0, 1e9)._replace(**options)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "table", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def content(file: int, *, complete: bool = True) -> dict[int, KnownClient]:
    """Return the clients in the file by port."""
    table = ClientTableFile(file, 0)
    try:
        assert table.complete == complete
        return {one.address[1]: one for one in table.clients}
    finally:
        table.close()


def test_a_file_without_a_client_table_is_incomplete(file: int) -> None:
    assert content(file, complete=False) == {}
    assert content(file) == {}


hosts = st.ip_addresses().map(str).filter(lambda host: not host.startswith("::ffff:"))
addresses = st.tuples(hosts, st.integers(0, 65_535))
clients = st.builds(
    KnownClient,
    address=addresses,
    source=addresses,
    flags=st.integers(0, 2**64 - 1),
    dialect=st.sampled_from(Dialect),
    joined_sequence=st.integers(0, MAX_SEQUENCE),
    heard_at=st.floats(0, 1e11),
)
changes = st.lists(st.tuples(st.integers(0, 5), clients | st.none()), max_size=30)


@given(changes=changes)
def test_a_client_table_file_holds_the_clients_put_and_not_removed(
    changes: list[tuple[int, KnownClient | None]],
) -> None:
    file = os.memfd_create("table")
    table = ClientTableFile(file, 0)
    known: dict[int, KnownClient] = {}
    for number, change in changes:
        address = "192.0.2.7", number
        if change is None:
            table.remove(address)
            known.pop(number, None)
        else:
            known[number] = change._replace(address=address)
            table.put(known[number])
    assert {one.address[1]: one for one in table.clients} == known
    table.close()
    assert content(file) == known
    os.close(file)


def test_a_client_table_file_grows_and_reuses_slots(file: int) -> None:
    table = ClientTableFile(file, 0)
    for port in range(1_000):
        table.put(client(port))
    size = os.fstat(file).st_size
    for port in range(1_000):
        table.remove(("192.0.2.7", port))
        table.put(client(port + 1_000))
    table.close()
    assert os.fstat(file).st_size == size == 1_024 * SLOT
    assert sorted(content(file)) == list(range(1_000, 2_000))


def test_a_table_of_version_1_is_converted(file: int) -> None:
    row = struct.pack("=4sHH4sHxxQQ", bytes([192, 0, 2, 7]), 5, 2, bytes([192, 0, 2, 8]), 6, 3, 7)
    slots = [struct.pack("=Q32sdI", 1, row, 1e9, zlib.crc32(row)), bytes(64)]
    content_v1 = b"FYRECLI\x01".ljust(64, b"\0") + b"".join(one.ljust(64, b"\0") for one in slots)
    os.pwrite(file, content_v1.ljust(PAGE, b"\0"), 0)
    expected = {5: KnownClient(("192.0.2.7", 5), ("192.0.2.8", 6), 3, Dialect.V2, 7, 1e9)}
    assert content(file) == expected
    assert os.pread(file, 8, 0) == b"FYRECLI\x02"
    assert content(file) == expected, "the converted table is read again"


def test_a_damaged_table_of_version_1_is_incomplete(file: int) -> None:
    os.pwrite(file, b"FYRECLI\x01".ljust(64, b"\0") + struct.pack("=Q", 1).ljust(64, b"\0"), 0)
    os.ftruncate(file, PAGE)
    assert content(file, complete=False) == {}


def test_a_client_with_a_link_local_address_is_not_stored(file: int) -> None:
    table = ClientTableFile(file, 0)
    zoned = "fe80::1%eth0", 5
    table.put(client(4)._replace(address=("192.0.2.7", 5), source=zoned))
    table.put(KnownClient(zoned, zoned, 0, Dialect.V2, 0, 1e9))
    assert table.clients == ()
    table.close()


def test_a_kill_at_any_line_leaves_the_old_or_the_new_client_entry(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ClientTableFile(file, 0)
    for port in range(31):  # A full page, so that the next client makes the file grow.
        table.put(client(port))
    old = {port: client(port) for port in range(31)}
    new = old | {5: client(5, flags=3), 99: client(99), 7: client(7, heard_at=2e9)}
    del new[6]
    left: list[bytes] = []

    def copy(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename == client_table_file.__file__:
            left.append(os.pread(file, 10 * PAGE, 0))
            return copy
        return None

    sys.settrace(copy)
    try:
        table.put(new[5])
        table.put(new[99])
        table.put(new[7])
        table.remove(("192.0.2.7", 6))
    finally:
        sys.settrace(None)
    table.close()
    assert len(set(left)) > 5
    for image in left:
        killed = os.memfd_create("killed")
        os.write(killed, image)
        found = content(killed)
        for port in old | new:
            assert found.get(port) in (old.get(port), new.get(port))
        os.close(killed)
    assert content(file) == new


@pytest.mark.parametrize("offset", [SLOT + 9, SLOT + 14, SLOT + 30, SLOT + 49])
def test_a_damaged_client_entry_is_skipped_and_the_table_incomplete(file: int, offset: int) -> None:
    table = ClientTableFile(file, 0)
    for port in range(31):
        table.put(client(port))
    table.close()
    before = content(file)
    os.pwrite(file, bytes([os.pread(file, 1, offset)[0] ^ 0xFF]), offset)
    damaged = content(file, complete=False)
    assert len(damaged) == len(before) - 1
    assert damaged.items() <= before.items()
