"""Manifest of a segment in object storage: one small file in the directory of the journal.

Its suffix is the state of the copy. A rename moves it to the next state, so that the process that moves segments and
the one that writes the journal need no lock against each other.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.interfaces import IDirectory
from fyrehose_twisted.journal.errors import TierError
from fyrehose_twisted.journal.format.segment_header import COPYING_SUFFIX, FULL_SUFFIX, segment_name, segment_number

BLOCK_BYTES = 2**20
"""Bytes of an object that are fetched and verified together."""

DIGEST_BYTES = 16
"""Bytes of SHA-256 that are kept for each block."""

MAX_ENTRY = 4 * 2**20
"""Upper limit of the size of a manifest, in bytes."""

_VERSION = 1
_DIGEST = re.compile(rf"(?:[0-9a-f]{{{2 * DIGEST_BYTES}}})*")


@dataclass(frozen=True, slots=True)
class TierEntry:
    """Manifest of one segment in object storage.

    :ivar number: number of the segment.
    :ivar url: URL of the object.
    :ivar size: length of the segment and of the object, in bytes.
    :ivar sha256: SHA-256 of the content.
    :ivar block_bytes: bytes of each block but the last.
    :ivar blocks: truncated SHA-256 of each block, one after the other.
    :ivar newest: latest receive time of its records, UTC microseconds since 1970.
    :ivar ranges: first and last held position of each epoch.
    :ivar header: header of the segment, which saves a request at each opening of the journal.
    """

    number: int
    url: str
    size: int
    sha256: str
    block_bytes: int
    blocks: bytes
    newest: int
    ranges: dict[int, tuple[int, int]]
    header: bytes

    def verify_block(self, index: int, data: bytes) -> bool:
        """Return whether ``data`` is the block at ``index``."""
        return self.blocks[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES] == _digest(data)

    def encode(self) -> bytes:
        """Encode the manifest as a line of JSON, and its CRC-32."""
        fields = {
            "version": _VERSION,
            "segment": self.number,
            "object": self.url,
            "bytes": self.size,
            "sha256": self.sha256,
            "block_bytes": self.block_bytes,
            "blocks": self.blocks.hex(),
            "newest": self.newest,
            "ranges": {str(epoch): list(pair) for epoch, pair in self.ranges.items()},
            "header": b64encode(self.header).decode(),
        }
        line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        return line + b"%08x\n" % zlib.crc32(line)


class ContentDigest:
    """Checksums of a segment, computed block by block."""

    def __init__(self) -> None:
        self._whole = sha256()
        self.blocks = b""
        self.size = 0

    def add(self, block: Datagram) -> None:
        """Add the next block of :data:`BLOCK_BYTES`, or the last one."""
        self._whole.update(block)
        self.blocks += _digest(block)
        self.size += len(block)

    def hexdigest(self) -> str:
        """Return the SHA-256 of all blocks."""
        return self._whole.hexdigest()


def _digest(data: Datagram) -> bytes:
    return sha256(data).digest()[:DIGEST_BYTES]


def decode(data: bytes, number: int) -> TierEntry:
    """Decode the manifest of segment ``number``. :raises ValueError: if it is damaged or of another segment."""
    line, _, check = data.partition(b"\n")
    if check != b"%08x\n" % zlib.crc32(line + b"\n"):
        raise ValueError("its checksum is wrong")
    fields: Any = json.loads(line)
    if fields["version"] != _VERSION:
        raise ValueError(f"unsupported version {fields['version']!r}; expected {_VERSION}")
    size, block_bytes = fields["bytes"], fields["block_bytes"]
    if fields["segment"] != number or not _DIGEST.fullmatch(fields["blocks"]):
        raise ValueError("it belongs to another segment, or is incomplete")
    blocks = bytes.fromhex(fields["blocks"])
    if block_bytes < 1 or len(blocks) != DIGEST_BYTES * -(-size // block_bytes):
        raise ValueError("its blocks do not add up to the size of the segment")
    ranges = {int(epoch): (first, last) for epoch, (first, last) in fields["ranges"].items()}
    header = b64decode(fields["header"], validate=True)
    return TierEntry(
        number, fields["object"], size, fields["sha256"], block_bytes, blocks, fields["newest"], ranges, header
    )


def entry_name(number: int, suffix: str) -> str:
    """Return the file name of a manifest."""
    return segment_name(number, suffix)


def entry_numbers(names: Iterable[str], suffix: str) -> Iterator[int]:
    """Yield the numbers of the segments among ``names`` whose manifest has ``suffix``."""
    for name in names:
        if name.endswith(suffix):
            number = segment_number(name.removesuffix(suffix) + FULL_SUFFIX)
            if number is not None:
                yield number


def read_entry(directory: IDirectory, number: int, suffix: str) -> TierEntry:
    """Read a manifest.

    :raises FileNotFoundError: if there is none.
    :raises TierError: if it is damaged.
    """
    name = entry_name(number, suffix)
    file = directory.open(name)
    try:
        return decode(file.read(0, MAX_ENTRY), number)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TierError(
            f"{directory}/{name}, which says where segment {number} is stored, is damaged: {error}"
        ) from None
    finally:
        file.close()


def write_entry(directory: IDirectory, entry: TierEntry) -> None:
    """Write a manifest in the state :data:`COPYING_SUFFIX`. It is durable on return."""
    name = entry_name(entry.number, COPYING_SUFFIX)
    with suppress(FileNotFoundError):
        directory.remove(f"{name}.tmp")
    file = directory.open(f"{name}.tmp", create=True)
    try:
        file.write(0, entry.encode())
        file.sync()
    finally:
        file.close()
    directory.rename(f"{name}.tmp", name)
    directory.sync()
