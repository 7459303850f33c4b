"""What a node is at, and what makes that change (document 004, "Discovery phase" to "Work phase").

:data:`TRANSITIONS` is the whole of it; ``docs/one-order.md`` shows it as a drawing that ``docs/diagrams.py`` makes of
that.
"""

from __future__ import annotations

from typing import Protocol

from automat import TypeMachineBuilder

from fyrehose_twisted.parcels.wire.messages import Mode


class ModeInputs(Protocol):
    """What happens to a node that changes what it is at. What does not matter in a state is ignored there."""

    def founded(self) -> None:
        """It began a cluster."""

    def answered(self) -> None:
        """Somebody of the cluster answered."""

    def caught_up(self) -> None:
        """It votes, and has what the others have."""

    def fell_behind(self) -> None:
        """The others go on without it."""

    def lost_quorum(self) -> None:
        """It is in touch with too few members."""

    def left(self) -> None:
        """It was told to stop."""

    def broke(self) -> None:
        """It can no longer keep its promises."""


class ModeCore:
    """Where a node is.

    :ivar mode: what others are told.
    """

    def __init__(self) -> None:
        self.mode = Mode.DSC


_LIVE_MODES = (Mode.DSC, Mode.SEQ_RECOVERY, Mode.WRK, Mode.ERR)
_FINAL_MODES = (Mode.SHUTDOWN, Mode.PANIC)
_INPUTS = (
    ModeInputs.founded,
    ModeInputs.answered,
    ModeInputs.caught_up,
    ModeInputs.fell_behind,
    ModeInputs.lost_quorum,
    ModeInputs.left,
    ModeInputs.broke,
)

TRANSITIONS: dict[tuple[Mode, str], Mode] = {
    (mode, cause.__name__): target
    for mode, cause, target in (
        (Mode.DSC, ModeInputs.founded, Mode.WRK),
        (Mode.DSC, ModeInputs.answered, Mode.SEQ_RECOVERY),
        (Mode.SEQ_RECOVERY, ModeInputs.caught_up, Mode.WRK),
        (Mode.SEQ_RECOVERY, ModeInputs.lost_quorum, Mode.ERR),
        (Mode.SEQ_RECOVERY, ModeInputs.founded, Mode.WRK),
        (Mode.WRK, ModeInputs.lost_quorum, Mode.ERR),
        (Mode.WRK, ModeInputs.fell_behind, Mode.SEQ_RECOVERY),
        (Mode.ERR, ModeInputs.answered, Mode.SEQ_RECOVERY),
        (Mode.ERR, ModeInputs.founded, Mode.WRK),
        *((mode, ModeInputs.left, Mode.SHUTDOWN) for mode in _LIVE_MODES),
        *((mode, ModeInputs.broke, Mode.PANIC) for mode in _LIVE_MODES),
    )
}
"""Where each of :class:`ModeInputs` leads from each mode. What is not here changes nothing."""


def _build_machine() -> TypeMachineBuilder[ModeInputs, ModeCore]:
    builder = TypeMachineBuilder(ModeInputs, ModeCore)
    states = {mode: builder.state(mode.value) for mode in _LIVE_MODES + _FINAL_MODES}
    for mode, state in states.items():
        for cause in _INPUTS:
            target = TRANSITIONS.get((mode, cause.__name__), mode)
            _transition(state, cause, states[target], target)
    return builder


def _transition(state: object, cause: object, to: object, mode: Mode) -> None:
    @state.upon(cause).to(to)  # type: ignore[attr-defined, untyped-decorator]  # Its types are made for literal states.
    def go(phases: ModeInputs, phase: ModeCore) -> None:
        phase.mode = mode


_machine = _build_machine().build()


class ModeMachine:
    """The machine, and why it is where it is."""

    def __init__(self) -> None:
        self._core = ModeCore()
        self._inputs = _machine(self._core)
        self.reason = "it just started"
        self.since = 0.0

    @property
    def mode(self) -> Mode:
        """What the node is at."""
        return self._core.mode

    def fire(self, input_name: str, reason: str, now: float) -> bool:
        """Something of :class:`ModeInputs` happened; returns whether the node is at something else now."""
        before = self.mode
        getattr(self._inputs, input_name)()
        if self.mode is before:
            return False
        self.reason, self.since = reason, now
        return True
