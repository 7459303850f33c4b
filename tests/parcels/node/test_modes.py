from __future__ import annotations

import pytest

from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.wire.messages import Mode

WAYS: dict[Mode, tuple[str, ...]] = {
    Mode.DSC: (),
    Mode.WRK: ("bootstrapped",),
    Mode.SEQ_RECOVERY: ("answered",),
    Mode.ERR: ("bootstrapped", "lost_quorum"),
    Mode.SHUTDOWN: ("left",),
    Mode.PANIC: ("broke",),
}
MOVES = {
    (Mode.DSC, "bootstrapped"): Mode.WRK,
    (Mode.DSC, "answered"): Mode.SEQ_RECOVERY,
    (Mode.SEQ_RECOVERY, "caught_up"): Mode.WRK,
    (Mode.SEQ_RECOVERY, "lost_quorum"): Mode.ERR,
    (Mode.SEQ_RECOVERY, "bootstrapped"): Mode.WRK,
    (Mode.WRK, "lost_quorum"): Mode.ERR,
    (Mode.WRK, "fell_behind"): Mode.SEQ_RECOVERY,
    (Mode.ERR, "answered"): Mode.SEQ_RECOVERY,
    (Mode.ERR, "bootstrapped"): Mode.WRK,
}
INPUTS = ("bootstrapped", "answered", "caught_up", "fell_behind", "lost_quorum", "left", "broke")


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("what", INPUTS)
def test_each_input_leads_to_the_mode_in_the_table(mode: Mode, what: str) -> None:
    modes = ModeMachine()
    for step in WAYS[mode]:
        modes.fire(step, "before", 1.0)
    assert modes.mode is mode
    why, since = modes.reason, modes.since
    expected = MOVES.get((mode, what), mode)
    if mode not in (Mode.SHUTDOWN, Mode.PANIC):
        expected = {"left": Mode.SHUTDOWN, "broke": Mode.PANIC}.get(what, expected)
    assert modes.fire(what, "because", 7.0) is (expected is not mode)
    assert modes.mode is expected
    assert modes.is_final is (expected in (Mode.SHUTDOWN, Mode.PANIC))
    assert (modes.reason, modes.since) == (("because", 7.0) if expected is not mode else (why, since))


def test_a_node_starts_in_discovery() -> None:
    modes = ModeMachine()
    assert modes.mode is Mode.DSC
    assert modes.reason


def test_mode_machines_do_not_share_their_state() -> None:
    one, other = ModeMachine(), ModeMachine()
    one.fire("bootstrapped", "x", 1.0)
    assert other.mode is Mode.DSC
