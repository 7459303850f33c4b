"""State files of nodes after arbitrary damage: opening one reports it or succeeds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.checks import attempt
from fuzz.choices import Choices
from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership, Snapshot
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.freenet.service.state_file import StateFile as FreenetState
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient, SequenceCheckpoint
from fyrehose_twisted.fyrehose.node.member.persistent_state import EMPTY_GROUP, MemberState, encode_group
from fyrehose_twisted.fyrehose.service.member.state_file import MemberStateFile
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile as BackboneState
from fyrehose_twisted.fyrehose.wire.member_messages import MemberData, NumberBounds
from fyrehose_twisted.fyrehose.wire.packets import Dialect
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.service.state_file import StateFile as HydraState
from fyrehose_twisted.parcels.node.persistent_state import StateChange
from fyrehose_twisted.parcels.service.state_file import StateFile
from fyrehose_twisted.parcels.wire.messages import PublisherRun

LONGEST = 12_288
"""More than the longest of them."""

BOOT = bytes(range(16))
_DIRECTORY = tempfile.TemporaryDirectory(prefix="fuzz-")


def _backbone(path: Path) -> Any:
    return BackboneState(path, "fyrehose://127.0.0.1:2323", boot_id=BOOT)


def _freenet(path: Path) -> Any:
    return FreenetState(path, lambda: (7, 0.25))


def _hydra(path: Path) -> Any:
    return HydraState(path, "network", promise_period=30.0, now=1_000.0, boot_id=lambda: BOOT)


def _promises(path: Path) -> Any:
    return StateFile(path, boot_id=lambda: BOOT)


def _member(path: Path) -> Any:
    return MemberStateFile(path, "fyrehose://s", "a", read_boot_id=lambda: BOOT)


OPEN: tuple[Callable[[Path], Any], ...] = (_backbone, _freenet, _hydra, _promises, _member)


@cache
def _written() -> list[bytes]:
    """Return a file of each kind."""
    directory = Path(_DIRECTORY.name)
    paths = [directory / f"written-{way}" for way in range(len(OPEN))]
    backbone, freenet, hydra, promises, member = (open_it(path) for open_it, path in zip(OPEN, paths, strict=True))
    address = "192.0.2.7", 4_000
    client = KnownClient(address, address, 0, Dialect.V2, 3, 1_000.0)
    backbone.persist(SequenceCheckpoint(7, 4_096, ((address, client),)))
    freenet.save(0.5)
    hydra.save(DurableState(), own_id=3)
    hydra.save(DurableState(term=5), own_id=3)
    promises.record_start(MemberId("node-1", 9))
    view = Membership(((MemberId("node-1", 9), ("192.0.2.7", 4_000)),))
    entries = [
        LogEntry(1, EntryKind.MEMBERSHIP, view),
        LogEntry(1, EntryKind.NO_OP, None),
        LogEntry(1, EntryKind.DATA, (PublisherRun("node-1", 1, 1, (b"a", b"b")),)),
    ]
    promises.persist(StateChange(1, MemberId("node-1", 9), 5, 0, None, 1, entries))
    me, data = MemberId("a", 9), MemberData(("192.0.2.7", 2_323), ("192.0.2.7", 2_324), False)
    log = (
        LogEntry(1, EntryKind.MEMBERSHIP, Membership(((me, data),))),
        LogEntry(1, EntryKind.NO_OP, None),
        LogEntry(1, EntryKind.DATA, NumberBounds(4_096, 7)),
    )
    state = MemberState(me, 1, me, 1, Snapshot(0, 0, encode_group(EMPTY_GROUP)), log[:2])
    member.persist(state)
    member.persist(state._replace(entries=log, commit_index=2))
    found = [path.read_bytes() for path in paths]
    for one_of_them in (backbone, freenet, hydra, promises, member):
        one_of_them.close()
    return found


def seeds() -> Iterable[bytes]:
    """Return faults of each kind of file."""
    for way, content in enumerate(_written()):
        yield bytes((way,))
        yield bytes((way, 255)) + content
        yield bytes((way, 254, 0, 60))
        for offset in (*range(0, min(len(content), 512), 7), *range(4_096, min(len(content), 4_288), 7)):
            yield bytes((way,)) + b"\0" + offset.to_bytes(2, "big") + b"\x01"


def one(data: bytes) -> None:
    """Change, truncate or replace a file; open it twice."""
    choices = Choices(data)
    way = choices.number() % len(OPEN)
    content = bytearray(_written()[way])
    while choices:
        step = choices.number()
        if step == 255:
            content[:] = choices.rest()
        elif step == 254:
            del content[choices.number(2) :]
        else:
            offset = choices.number(2)
            if content:
                content[offset % len(content)] ^= choices.number()
    with tempfile.TemporaryDirectory(dir=_DIRECTORY.name) as directory:
        path = Path(directory) / "state"
        path.write_bytes(content)
        for _ in range(2):
            opened, error = attempt(lambda: OPEN[way](path), StateFileError)
            if error is None:
                opened.close()
