from __future__ import annotations

import pytest

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.wire.messages import (
    NEIGHBOUR_TIMEOUT,
    Extension,
    Heartbeat,
    Mode,
    NodeInfo,
    RefusalReason,
    node_id,
)


def info(name: str, number: int, incarnation: int | None = 1) -> NodeInfo:
    ours = None if incarnation is None else Extension(1, incarnation, 5)
    return NodeInfo(node_id(name), Mode.DSC, name, (f"10.0.0.{number}", 7_878), ours)


ME = info("Ivan", 1)


def test_neighbours_are_added_updated_and_removed() -> None:
    known = Neighbours(ME, 3)
    boris, vera = known.add(info("Vera", 3), 1.0), known.add(info("Boris", 2, None), 1.0)
    assert boris is not None
    assert vera is not None
    assert [one.info.name for one in known] == ["Vera", "Boris"]
    assert [one.name for one in known.node_infos()] == ["Boris", "Vera"]
    assert (boris.member, vera.member) == (MemberId("Vera", 1), None)
    vera.mode = Mode.WRK
    assert [one.mode for one in known.node_infos()] == [Mode.WRK, Mode.DSC]
    assert known.get("Boris") is vera
    assert known.get("Olga") is None
    assert known.remove("Boris") is vera
    assert known.remove("Boris") is None
    assert len(known) == 1


def test_number_of_neighbours_is_limited() -> None:
    known = Neighbours(ME, 1)
    assert known.add(info("Boris", 2), 1.0) is not None
    assert known.add(info("Vera", 3), 1.0) is None
    again = known.add(info("Boris", 4, 7)._replace(mode=Mode.ERR), 2.0)
    assert again is not None
    assert (again.info.host[0], again.member, again.heard_at, again.mode) == (
        "10.0.0.4",
        MemberId("Boris", 7),
        2.0,
        Mode.ERR,
    )


def test_neighbour_times_out_after_silence() -> None:
    known = Neighbours(ME, 3)
    boris = known.add(info("Boris", 2), 10.0)
    assert boris is not None
    assert boris.is_alive(10.0 + NEIGHBOUR_TIMEOUT)
    assert not boris.is_alive(10.01 + NEIGHBOUR_TIMEOUT)
    assert known.timed_out(10.0 + NEIGHBOUR_TIMEOUT) == []
    assert known.timed_out(10.01 + NEIGHBOUR_TIMEOUT) == [boris]
    boris.suspected = True
    assert known.timed_out(10.0) == [boris]
    known.add(info("Boris", 2), 11.0)
    assert boris.is_alive(11.0)


def clash() -> tuple[str, str]:
    seen: dict[int, str] = {}
    number = 0
    while True:
        name = f"n{number}"
        if node_id(name) in seen:
            return seen[node_id(name)], name
        seen[node_id(name)] = name
        number += 1


def test_neighbour_with_a_taken_name_or_id_conflicts() -> None:
    one, two = clash()
    known = Neighbours(ME, 9)
    known.add(info("Boris", 2), 1.0)
    known.add(info(one, 4, None), 1.0)

    def conflict(other: NodeInfo, now: float = 1.0) -> RefusalReason | None:
        found = known.conflict(other, now)
        assert found is None or other.name in found[1]
        return None if found is None else found[0]

    assert conflict(info("Ivan", 9, 2)) is RefusalReason.NAME_TAKEN
    assert conflict(info("Ivan", 9, None)) is RefusalReason.NAME_TAKEN
    assert conflict(ME) is None  # The node reached itself.
    assert conflict(info("Boris", 9, 2)) is RefusalReason.NAME_TAKEN
    assert conflict(info("Boris", 9, 1)) is None  # The same incarnation at another address.
    assert conflict(info("Boris", 2, 2)) is None  # A new incarnation, without state.
    assert conflict(info("Boris", 9, 2), 1.1 + NEIGHBOUR_TIMEOUT) is None
    assert conflict(info("Olga", 9)) is None
    assert conflict(info(two, 9)) is RefusalReason.ID_TAKEN
    assert conflict(info(two, 9, None)) is RefusalReason.ID_TAKEN
    assert conflict(info(two, 9), 1.1 + NEIGHBOUR_TIMEOUT) is None
    assert conflict(info(one, 9, None)) is None
    own, other = clash()
    known = Neighbours(info(own, 1), 9)
    assert conflict(info(other, 9)) is RefusalReason.ID_TAKEN


@pytest.mark.parametrize("name", ["Ivan", "Boris"])
def test_wrong_id_of_a_caller_does_not_hide_a_name_conflict(name: str) -> None:
    known = Neighbours(ME, 9)
    known.add(info("Boris", 2), 1.0)
    found = known.conflict(info(name, 9, 2)._replace(id=1), 1.0)
    assert found is not None
    assert found[0] is RefusalReason.NAME_TAKEN


def test_only_the_incarnation_that_is_a_neighbour_is_heard() -> None:
    known = Neighbours(ME, 9)
    boris = known.add(info("Boris", 2), 1.0)
    assert boris is not None
    boris.suspected = True
    assert not known.is_alive(MemberId("Boris", 1), 1.0)
    assert not known.heard(MemberId("Boris", 2), 3.0)
    assert not known.heard(MemberId("Olga", 1), 3.0)
    assert boris.heard_at == 1.0
    assert known.heard(MemberId("Boris", 1), 3.0)
    assert (boris.heard_at, boris.suspected) == (3.0, False)
    assert known.is_alive(MemberId("Boris", 1), 3.0)
    assert not known.is_alive(MemberId("Boris", 2), 3.0)
    assert not known.is_alive(MemberId("Boris", 1), 3.1 + NEIGHBOUR_TIMEOUT)


def test_a_heartbeat_of_a_former_incarnation_changes_nothing() -> None:
    known = Neighbours(ME, 9)
    boris = known.add(info("Boris", 2), 1.0)
    assert boris is not None
    known.heartbeat_received(Heartbeat(Mode.WRK, 1, 7), MemberId("Boris", 2))
    assert (boris.mode, boris.sequence) == (Mode.DSC, -1)
    known.heartbeat_received(Heartbeat(Mode.WRK, 1, 7), MemberId("Boris", 1))
    assert (boris.mode, boris.sequence) == (Mode.WRK, 7)
