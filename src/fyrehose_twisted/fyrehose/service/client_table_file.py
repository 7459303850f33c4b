"""Client table in the state file of a backbone, from which a restarted backbone serves its clients at once.

It follows the page of numbers: slots of 128 bytes, of which the first begins with the magic ``FYRECLI`` and version 2.
Each other slot holds a client, in the machine's byte order:

======  =====  =====================================================
offset  bytes  content
======  =====  =====================================================
0       8      1 if the slot is in use, else 0
8       18     the client's IPv6 or IPv4-mapped address and port
26      2      dialect: 1 or 2
28      18     source of its latest KEEPALIVE
46      2      0
48      8      FLAGS
56      8      last number given when it joined
64      8      UTC seconds of its latest KEEPALIVE, a double
72      4      CRC-32 of bytes 8-63
76      52     0
======  =====  =====================================================

A table of version 1 is converted. Its slots have 64 bytes, with IPv4 addresses of 4 bytes and no gaps. A client with a
link-local address is not stored, because the number of its link may change.

A slot is filled before it is marked as in use, and a changed client gets a new slot before its old one is freed.
A process that dies therefore leaves the old or the new state of each client, at worst both.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from ipaddress import IPv4Address, IPv6Address

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient
from fyrehose_twisted.fyrehose.wire.packets import Dialect

MAGIC, MAGIC_V1 = b"FYRECLI\x02", b"FYRECLI\x01"
SLOT, SLOT_V1 = 128, 64
_CLIENT, _CLIENT_V1 = struct.Struct("=16sHH16sHxxQQ"), struct.Struct("=4sHH4sHxxQQ")
_SLOT, _SLOT_V1 = (struct.Struct(f"=Q{client.size}sdI") for client in (_CLIENT, _CLIENT_V1))
_HEARD_AT_WORD = 8  # In words of 8 bytes.
_MAPPED = IPv6Address("::ffff:0:0").packed[:12]


class ClientTableFile:
    """Client table in a memory-mapped file.

    :param file: descriptor of a file open for reading and writing, which is not closed here.
    :param offset: offset of the table, a multiple of the page size.
    :ivar complete: whether the table existed and is undamaged.
    :raises OSError: if the file cannot be mapped or extended.
    """

    def __init__(self, file: int, offset: int) -> None:
        self._file = file
        self._offset = offset
        self._slots: dict[Address, tuple[int, KnownClient]] = {}
        self._free_slots: list[int] = []
        size = os.fstat(file).st_size - offset
        found = size > 0
        self._map(self._allocate(size or mmap.PAGESIZE))
        if found and self._memory[:8] == MAGIC_V1:
            self._convert()
            return
        self.complete = found and self._memory[:8] == MAGIC
        if not self.complete:
            self._memory[:] = bytes(len(self._memory))
            self._memory[:8] = MAGIC
        self._read()

    @property
    def clients(self) -> tuple[KnownClient, ...]:
        """The clients in the table."""
        return tuple(client for _, client in self._slots.values())

    def put(self, client: KnownClient) -> None:
        """Add or update a client. :raises OSError: if the file cannot be extended."""
        if "%" in client.address[0] + client.source[0]:
            self.remove(client.address)
            return
        slot, known = self._slots.get(client.address, (0, None))
        if known is not None and known._replace(heard_at=client.heard_at) == client:
            self._times[slot * SLOT // 8 + _HEARD_AT_WORD] = client.heard_at
        else:
            if not self._free_slots:
                self._grow()
            new = self._free_slots.pop()
            body = _pack(client)
            _SLOT.pack_into(self._memory, new * SLOT, 0, body, client.heard_at, zlib.crc32(body))
            self._words[new * SLOT // 8] = 1
            self._release(slot)
            slot = new
        self._slots[client.address] = slot, client

    def remove(self, address: Address) -> None:
        """Remove a client, if it is in the table."""
        slot, _ = self._slots.pop(address, (0, None))
        self._release(slot)

    def flush(self) -> None:
        """Sync the table to disk."""
        self._memory.flush()

    def close(self) -> None:
        """Unmap the file."""
        self._words.release()
        self._times.release()
        self._memory.close()

    def _allocate(self, size: int) -> int:
        # Allocate the blocks first: a write to an unallocated block on a full disk would kill the process.
        os.posix_fallocate(self._file, self._offset, size)
        return size

    def _map(self, size: int) -> None:
        self._memory = mmap.mmap(self._file, size, offset=self._offset)
        self._words = memoryview(self._memory).cast("Q")
        self._times = memoryview(self._memory).cast("d")

    def _grow(self) -> None:
        size = len(self._memory)
        larger = self._allocate(2 * size)
        self.close()
        self._map(larger)
        self._free_slots += range(size // SLOT, len(self._memory) // SLOT)

    def _read(self) -> None:
        for slot in range(1, len(self._memory) // SLOT):
            used, body, heard_at, checksum = _SLOT.unpack_from(self._memory, slot * SLOT)
            client = _unpack(_CLIENT, body, heard_at) if used == 1 and checksum == zlib.crc32(body) else None
            if client is None:
                self.complete &= used == 0
                self._free_slots.append(slot)
                self._words[slot * SLOT // 8] = 0
            else:
                former, _ = self._slots.get(client.address, (0, None))
                self._slots[client.address] = slot, client
                self._release(former)

    def _convert(self) -> None:
        """Convert a table of version 1. A process that dies meanwhile leaves an incomplete table."""
        self.complete = True
        clients: list[KnownClient] = []
        for slot in range(1, len(self._memory) // SLOT_V1):
            used, body, heard_at, checksum = _SLOT_V1.unpack_from(self._memory, slot * SLOT_V1)
            client = _unpack(_CLIENT_V1, body, heard_at) if used == 1 and checksum == zlib.crc32(body) else None
            self.complete &= used == 0 or client is not None
            if client is not None:
                clients.append(client)
        self._memory[:] = bytes(len(self._memory))
        self._free_slots += range(1, len(self._memory) // SLOT)
        for client in clients:
            self.put(client)
        self._memory[:8] = MAGIC

    def _release(self, slot: int) -> None:
        if slot:
            self._words[slot * SLOT // 8] = 0
            self._free_slots.append(slot)


def _pack(client: KnownClient) -> bytes:
    (host, port), (source, source_port) = client.address, client.source
    return _CLIENT.pack(
        _pack_host(host),
        port,
        client.dialect,
        _pack_host(source),
        source_port,
        client.flags,
        client.joined_sequence,
    )


def _unpack(layout: struct.Struct, body: bytes, heard_at: float) -> KnownClient | None:
    host, port, dialect, source, source_port, flags, joined = layout.unpack(body)
    if dialect not in list(Dialect):
        return None
    address, peer = (_unpack_host(host), port), (_unpack_host(source), source_port)
    return KnownClient(address, peer, flags, Dialect(dialect), joined, heard_at)


def _pack_host(host: str) -> bytes:
    return IPv6Address(host).packed if ":" in host else _MAPPED + IPv4Address(host).packed


def _unpack_host(packed: bytes) -> str:
    packed = packed.removeprefix(_MAPPED) if len(packed) > 4 else packed
    return str(IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed))
