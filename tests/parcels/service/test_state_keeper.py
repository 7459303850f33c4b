"""File with snapshots of the application's state."""

from __future__ import annotations

from pathlib import Path

import pytest
from cbor2 import dumps
from parcels.counter import Sum
from parcels.harness import Host, Net
from twisted.logger import LogEvent, capturedLogs

from fyrehose_twisted.errors import StateFileError, StateUnavailable
from fyrehose_twisted.parcels.node.status import format_cluster_id
from fyrehose_twisted.parcels.service import state_keeper
from fyrehose_twisted.parcels.service.state_keeper import STATE_NAME, StateKeeper
from fyrehose_twisted.parcels.state_snapshot import StateSnapshot, read_snapshot, write_snapshot


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def state() -> Sum:
    return Sum()


@pytest.fixture
def host(net: Net, state: Sum) -> Host:
    host = net.node("Ivan", 1, bootstrap=True, application=state)
    net.run(2)
    return host


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / STATE_NAME


@pytest.fixture
def keeper(state: Sum, path: Path) -> StateKeeper:
    return StateKeeper(state, path.parent)


def publish(net: Net, host: Host, *events: bytes) -> None:
    host.node.publish(list(events), object(), net.now)
    host.flush()
    net.run(1)


def test_a_stored_snapshot_is_restored(net: Net, host: Host, keeper: StateKeeper, path: Path) -> None:
    publish(net, host, b"5", b"7")
    keeper.save(host.node)
    assert read_snapshot(path) == StateSnapshot(format_cluster_id(host.node.cluster_id), 2, b"12")
    assert path.stat().st_mode & 0o777 == 0o600
    again = StateKeeper(restored := Sum(), path.parent)
    assert (again.load(host.node.cluster_id), restored.total) == (2, 12)


def test_a_snapshot_is_stored_after_many_events_and_at_the_end(
    net: Net, host: Host, keeper: StateKeeper, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_keeper, "SNAPSHOT_EVENTS", 3)

    def stored() -> int:
        found = read_snapshot(path)
        return -1 if found is None else found.sequence

    keeper.save(host.node)
    assert stored() == 0
    publish(net, host, b"1", b"2")
    keeper.save(host.node)
    assert stored() == 0
    publish(net, host, b"3")
    keeper.save(host.node)
    assert stored() == 3
    publish(net, host, b"4")
    keeper.save(host.node, always=True)
    assert stored() == 4
    path.unlink()
    keeper.save(host.node, always=True)
    assert stored() == -1


def test_a_snapshot_of_another_cluster_is_ignored_with_a_warning(keeper: StateKeeper, state: Sum, path: Path) -> None:
    write_snapshot(path, StateSnapshot(format_cluster_id(7), 3, b"6"))
    logged: list[LogEvent]
    with capturedLogs() as logged:
        assert keeper.load(8) == 0
    assert state.total == 0
    [warning] = logged
    assert (warning["found"], warning["ours"]) == ("0" * 15 + "7", "0" * 15 + "8")


def test_without_a_directory_nothing_is_stored(net: Net, host: Host, state: Sum) -> None:
    keeper = StateKeeper(state, None)
    publish(net, host, b"1")
    keeper.save(host.node, always=True)
    assert keeper.load(host.node.cluster_id) == 0
    assert keeper.take(host.node).data == b"1"


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"no cbor", dumps(7), dumps(["fyrehose parcels state 2", "", 1, b""])],
    ids=["empty", "break", "text", "number", "later format"],
)
def test_a_file_that_is_no_snapshot_is_refused(keeper: StateKeeper, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StateFileError, match=r"state is not a snapshot of a state"):
        keeper.load(1)


def test_an_unreadable_snapshot_is_reported(keeper: StateKeeper, path: Path) -> None:
    path.mkdir()
    with pytest.raises(StateFileError, match=r"state cannot be read: Is a directory"):
        keeper.load(1)
    with pytest.raises(StateFileError, match=r"state cannot be written: "):
        write_snapshot(path, StateSnapshot("", 1, b""))


def test_a_snapshot_that_the_application_cannot_restore_stops_the_start(keeper: StateKeeper, path: Path) -> None:
    write_snapshot(path, StateSnapshot(format_cluster_id(7), 3, b"six"))
    with pytest.raises(StateFileError, match=r"the state cannot be restored: ValueError: invalid literal"):
        keeper.load(7)


def test_no_state_is_given_that_is_incomplete_or_has_failed(net: Net, host: Host, keeper: StateKeeper) -> None:
    publish(net, host, b"5")
    assert keeper.take(host.node).data == b"5"
    host.node.components.application_state.sequence = 0
    with pytest.raises(StateUnavailable, match="the state contains the events up to 0 so far") as raised:
        keeper.take(host.node)
    assert raised.value.why == "behind"
    host.node.components.application_state.sequence = 1
    publish(net, host, b"no number")
    with pytest.raises(StateUnavailable, match="it cannot apply event 2: ValueError") as raised:
        keeper.take(host.node)
    assert raised.value.why == "state-failed"
