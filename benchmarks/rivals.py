"""Alternatives to the journal for storing records, behind one protocol: SQLite, LMDB and RocksDB.

Each store holds one stream in one epoch, so that a sequence number suffices as key; this saves the other stores bytes
that the journal does not need either. Each is set up as its manual advises for appended records, and as was fastest
when tried; see the docstrings. Stores that are not installed are omitted: see :func:`available`.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fyrehose_twisted.record import Record

# Some of them may not be installed.
with suppress(ImportError):
    import lmdb
with suppress(ImportError):
    import rocksdict
with suppress(ImportError):
    from fyrehose_twisted.journal.store import open_journal
if TYPE_CHECKING:
    from fyrehose_twisted.journal.block import Block

Row = tuple[int, int, bytes]
"""Sequence, microseconds since 1970, payload."""

OURS = "journal"
TIDY = "journal, in order"
FROM_ROWS = "journal, given rows"
STREAM, EPOCH = "fyrehose://bench", 1
FIRST, LAST = 1, 2**63 - 1
KEY = struct.Struct(">QQ")
CHUNK = 512
"""Pairs decoded at once. More are slower, since they exceed the CPU cache."""


class Store(Protocol):
    """Rows in the order of their sequences, which are appended in that order.

    Made from the directory that the store has for itself, which need not exist. ``sync_each`` says whether
    :meth:`append` is durable; otherwise what it wrote survives a killed process, and :meth:`sync` makes it durable.
    """

    def __init__(self, path: Path, *, sync_each: bool = True) -> None:
        """Make the store, or open it again."""

    def append(self, batch: Sequence[Any]) -> None:
        """Append rows as one group, in the form of ``prepared()`` if the store has that method."""

    def sync(self) -> None:
        """Sync appended rows."""

    def read(self, first: int, last: int) -> list[Row]:
        """Return the rows from ``first`` to ``last``, both included."""

    def scan(self) -> Iterator[Row]:
        """Iterate over all rows."""

    def settle(self) -> None:
        """Do the background work of the store now."""

    def close(self) -> None:
        """Close it."""


class SqliteStore:
    """One table whose rowid is the sequence, with a write-ahead log.

    Committed with synchronous=FULL, which syncs the log. Without ``sync_each``, commits are NORMAL, which does not; a
    FULL commit syncs the whole log, so one that changes nothing else makes them durable. Checkpoints at 4,000 pages
    instead of 1,000 and reads through a memory map were a third faster; pages of 8 or 16 KiB were no faster, and
    neither was fetchmany(), for a cursor already is an iterator in C.
    """

    def __init__(self, path: Path, *, sync_each: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(path / "records.sqlite", isolation_level=None)
        self.set("journal_mode", "WAL")
        self.set("synchronous", "FULL" if sync_each else "NORMAL")
        self.set("wal_autocheckpoint", "4000")
        self.set("mmap_size", str(2**36))
        self.set("cache_size", "-65536")
        self.sync_each = sync_each
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS records"
            " (sequence INTEGER PRIMARY KEY, received_at INTEGER NOT NULL, payload BLOB NOT NULL)"
        )

    def set(self, name: str, value: str) -> None:
        """Set a pragma of SQLite."""
        self.connection.execute(f"PRAGMA {name}={value}").fetchall()

    def append(self, batch: Sequence[Row]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO records VALUES (?, ?, ?)", batch)
        self.connection.execute("COMMIT")

    def sync(self) -> None:
        if not self.sync_each:
            self.set("synchronous", "FULL")
            self.set("user_version", "1")
            self.set("synchronous", "NORMAL")

    def read(self, first: int, last: int) -> list[Row]:
        return self.connection.execute(
            "SELECT sequence, received_at, payload FROM records WHERE sequence BETWEEN ? AND ? ORDER BY sequence",
            (first, last),
        ).fetchall()

    def scan(self) -> Iterator[Row]:
        return self.connection.execute("SELECT sequence, received_at, payload FROM records ORDER BY sequence")

    def settle(self) -> None:
        self.set("wal_checkpoint", "TRUNCATE")

    def close(self) -> None:
        self.connection.close()


def pairs(batch: Iterable[Row]) -> list[tuple[bytes, bytes]]:
    """Return keys and values for a store of bytes.

    The time is part of the key, behind the sequence. Keys stay in order, values need no slicing, and this was a fifth
    to a third faster than a key of eight bytes and the time before the payload, for writing and for reading.
    """
    pack = KEY.pack
    return [(pack(sequence, received_at), payload) for sequence, received_at, payload in batch]


def rows(found: Iterator[tuple[bytes, bytes]]) -> Iterator[Row]:
    """Invert :func:`pairs`. NumPy decodes many keys at once, up to a third faster than one by one."""
    while chunk := list(islice(found, CHUNK)):
        keys, payloads = zip(*chunk, strict=True)
        numbers = np.frombuffer(b"".join(keys), ">i8").astype("i8")
        yield from zip(numbers[::2].tolist(), numbers[1::2].tolist(), payloads, strict=True)


class LmdbStore:
    """A B+ tree in a memory map, appended to with MDB_APPEND, which fills pages; one call into C for a group.

    LMDB's own defaults, ``sync`` and ``metasync``, make commits durable. Without ``sync_each`` it runs with MDB_NOSYNC:
    there is nothing between, and when the power fails, the file may then be damaged, not only short. The writable map
    (MDB_WRITEMAP) was up to half slower.
    """

    def __init__(self, path: Path, *, sync_each: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.environment = lmdb.open(str(path), map_size=2**36, sync=sync_each, meminit=False)

    def append(self, batch: Sequence[Row]) -> None:
        with self.environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(pairs(batch), append=True)

    def sync(self) -> None:
        self.environment.sync(True)

    def read(self, first: int, last: int) -> list[Row]:
        with self.environment.begin() as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(KEY.pack(first, 0)):
                return []
            found = list(rows(islice(cursor.iternext(), last - first + 1)))
        return within(found, last)

    def scan(self) -> Iterator[Row]:
        with self.environment.begin() as transaction, transaction.cursor() as cursor:
            yield from rows(cursor.iternext())

    def settle(self) -> None:
        self.sync()

    def close(self) -> None:
        self.environment.close()


class RocksStore:
    """A log-structured merge tree; a WriteBatch is a group, and its write-ahead log is synced.

    In raw mode keys and values are bytes. No compression: the payloads are random. Memtables of 128 MiB instead of 64
    and blocks of 16 KiB instead of 4 were faster; for scans so is read-ahead that leaves the block cache alone.
    Recycled logs, which the manual advises where metadata is slow to sync, made no difference.
    """

    def __init__(self, path: Path, *, sync_each: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_size(16 * 2**10)
        blocks.set_block_cache(rocksdict.Cache(256 * 2**20))
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        options.set_write_buffer_size(128 * 2**20)
        options.set_block_based_table_factory(blocks)
        self.store = rocksdict.Rdict(str(path), options)
        self.writing = rocksdict.WriteOptions()
        self.writing.sync = sync_each

    def append(self, batch: Sequence[Row]) -> None:
        group = rocksdict.WriteBatch(raw_mode=True)
        put = group.put
        for key, payload in pairs(batch):
            put(key, payload)
        self.store.write(group, self.writing)

    def sync(self) -> None:
        self.store.flush_wal(True)

    def read(self, first: int, last: int) -> list[Row]:
        found = self.store.items(from_key=KEY.pack(first, 0))
        return within(list(rows(islice(found, last - first + 1))), last)

    def scan(self) -> Iterator[Row]:
        reading = rocksdict.ReadOptions()
        reading.set_readahead_size(2 * 2**20)
        reading.fill_cache(False)
        return rows(self.store.items(read_opt=reading))

    def settle(self) -> None:
        self.store.flush()
        self.store.compact_range(None, None)

    def close(self) -> None:
        self.store.close()


def within(found: list[Row], last: int) -> list[Row]:
    """Omit rows after ``last``, which occur where sequences are missing."""
    while found and found[-1][0] > last:
        found.pop()
    return found


class OurJournal:
    """The journal as it is written: small frames, in the order of arrival.

    :meth:`append` makes its records of rows beforehand, in :meth:`prepared`, as the rivals are given rows: a client of
    a backbone makes records anyway, to hand them over.
    """

    def __init__(self, path: Path, *, sync_each: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.journal = open_journal(path, STREAM)
        self.sync_each = sync_each

    def prepared(self, batch: Sequence[Row]) -> list[Record]:
        """Return rows in the form that :meth:`append` takes."""
        return [Record(STREAM, EPOCH, *row) for row in batch]

    def append(self, batch: Sequence[Record]) -> None:
        self.journal.append(batch)
        self.journal.commit(self.sync_each)

    def sync(self) -> None:
        self.journal.commit()

    def columns(self, first: int, last: int) -> Iterator[Block]:
        """Iterate over blocks, which hold records as columns. No other store supports this."""
        return self.journal.read(EPOCH, first, last)

    def blocks(self, first: int, last: int) -> list[Block]:
        """Return all blocks."""
        return list(self.columns(first, last))

    def read(self, first: int, last: int) -> list[Row]:
        return list(self._rows(first, last))

    def scan(self) -> Iterator[Row]:
        return self._rows(FIRST, LAST)

    def settle(self) -> None:
        self.sync()

    def close(self) -> None:
        self.journal.close()

    def _rows(self, first: int, last: int) -> Iterator[Row]:
        for block in self.columns(first, last):
            yield from zip(block.sequences.tolist(), block.times.tolist(), block.payloads(), strict=True)


class TidyJournal(OurJournal):
    """Journal whose full segments are compacted, as the service does in the background."""

    def settle(self) -> None:
        self.sync()
        self.journal.roll()
        self.journal.compact()


class RowsJournal(OurJournal):
    """Journal of a user with rows instead of records, whose conversion is timed."""

    def append(self, batch: Sequence[Any]) -> None:
        super().append(OurJournal.prepared(self, batch))

    def prepared(self, batch: Sequence[Row]) -> Sequence[Any]:
        return batch


class PlainFile:
    """Lower bound of a store: payloads only, one write() per group, then fdatasync()."""

    def __init__(self, path: Path, *, sync_each: bool = True) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(path / "payloads", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.sync_each = sync_each

    def append(self, batch: Sequence[Row]) -> None:
        """Write a group."""
        os.write(self.descriptor, b"".join([row[2] for row in batch]))
        if self.sync_each:
            self.sync()

    def sync(self) -> None:
        """Make it durable."""
        os.fdatasync(self.descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


Factory = Callable[..., Any]
"""A class that is a :class:`Store`."""

STORES: dict[str, tuple[str, Factory]] = {
    OURS: ("fyrehose_twisted.journal.store", OurJournal),
    TIDY: ("fyrehose_twisted.journal.store", TidyJournal),
    FROM_ROWS: ("fyrehose_twisted.journal.store", RowsJournal),
    "SQLite": ("sqlite3", SqliteStore),
    "LMDB": ("lmdb", LmdbStore),
    "RocksDB": ("rocksdict", RocksStore),
}


def available() -> tuple[dict[str, Factory], list[str]]:
    """Return the installed stores, and why the others are missing."""
    factories, missing = {}, []
    for name, (module, factory) in STORES.items():
        try:
            import_module(module)
        except ImportError as error:
            missing.append(f"{name} ({error})")
        else:
            factories[name] = factory
    return factories, missing
