"""Files of a node that continues from a backup."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_twisted
from parcels.counter import Sum
from parcels.harness import Net
from twisted.internet.task import Clock

from fyrehose_twisted.consensus.messages import Membership
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.backup import BackupHead, BackupReader, BackupWriter
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.status import format_cluster_id
from fyrehose_twisted.parcels.service.restoring import restore
from fyrehose_twisted.parcels.service.state_keeper import StateKeeper
from fyrehose_twisted.parcels.service.storage import Storage

ADDRESS = "192.0.2.1", 7_878


@pytest.fixture
def backup() -> bytes:
    """Return the backup of a cluster with five events, of which it holds the last three."""
    net = Net()
    host = net.node("Ivan", 1, bootstrap=True, cluster="trades")
    net.run(2)
    for number in range(1, 6):
        host.node.publish([b"%d" % number], number, net.now)
        host.flush()
        net.run(0.1)
    node = host.node
    numbering = node.components.delivery.numbering.dump(Membership(()))
    file = BytesIO()
    head = BackupHead("trades", format_cluster_id(node.cluster_id), numbering, 3, node.sequence, 5, b"15")
    writer = BackupWriter(file, head)
    writer.write(node.read(3, 4, 9))
    writer.write(node.read(5, 5, 9))
    writer.end()
    return file.getvalue()


def restored(backup: bytes, directory: Path, progress: Any = lambda count: None) -> str:
    return restore(BackupReader(BytesIO(backup)), directory, "Olga", ADDRESS, progress)


@pytest_twisted.ensureDeferred
async def test_node_continues_after_the_last_event_in_a_new_cluster(backup: bytes, tmp_path: Path) -> None:
    directory, written = tmp_path / "olga", []
    cluster_id = restored(backup, directory, written.append)
    assert sum(written) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["olga"]
    config = NodeConfig("Olga", "trades", ADDRESS)
    clock = Clock()
    storage = Storage(directory)
    storage.open(config, clock, lambda error: None)
    keeper = StateKeeper(state := Sum(), directory)
    assert storage.persistent_state is not None
    contained = keeper.load(storage.persistent_state.cluster_id)
    node = ClusterNode(
        config,
        Random(1),
        0.0,
        persistent_state=storage.persistent_state,
        history=storage.history,
        application=state,
        application_sequence=contained,
    )
    assert (format_cluster_id(node.cluster_id), node.sequence, node.oldest) == (cluster_id, 5, 3)
    assert cluster_id != BackupReader(BytesIO(backup)).head.cluster_id
    assert [event.data for event in node.read(3, 5, 9)] == [b"3", b"4", b"5"]
    assert (contained, state.total) == (5, 15)
    for time in range(1, 40):
        node.tick(time / 2)
        node.drain()
    node.publish([b"6"], "token", 20.0)
    node.drain()
    assert [event.data for event in node.read(6, 6, 9)] == [b"6"]
    [member] = node.state(20.0).members
    assert (member.name, member.address) == ("Olga", "192.0.2.1:7878")
    await storage.close()


def test_files_are_restored_into_an_empty_directory_only(backup: bytes, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    restored(backup, tmp_path / "here")
    with pytest.raises(StateFileError, match="here is not empty; restore into a new directory"):
        restored(backup, tmp_path / "here")


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.99])
def test_damaged_backup_leaves_no_files(backup: bytes, tmp_path: Path, kept: float) -> None:
    with pytest.raises(StateFileError):
        restored(backup[: int(len(backup) * kept)], tmp_path / "olga")
    assert list(tmp_path.iterdir()) == []


def test_backup_with_damaged_numbering_is_refused(backup: bytes, tmp_path: Path) -> None:
    head = BackupReader(BytesIO(backup)).head._replace(numbering=b"no numbering")
    file = BytesIO()
    BackupWriter(file, head)
    with pytest.raises(StateFileError, match="the backup is damaged: "):
        restored(file.getvalue(), tmp_path / "olga")
    assert list(tmp_path.iterdir()) == []
