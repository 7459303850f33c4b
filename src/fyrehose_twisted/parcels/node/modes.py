"""State machine of a node's mode (document 004, "Discovery phase" to "Work phase").

:data:`TRANSITIONS` defines it. ``docs/diagrams.py`` draws it for ``docs/one-order.md``.
"""

from __future__ import annotations

from typing import Protocol

from automat import TypeMachineBuilder

from fyrehose_twisted.parcels.wire.messages import Mode


class ModeInputs(Protocol):
    """Inputs of the state machine. Inputs without a transition are ignored."""

    def bootstrapped(self) -> None:
        """The node bootstrapped a cluster."""

    def answered(self) -> None:
        """A node of the cluster answered."""

    def caught_up(self) -> None:
        """The node votes and has all events."""

    def fell_behind(self) -> None:
        """The cluster continues without this node."""

    def lost_quorum(self) -> None:
        """The node lost contact with the quorum."""

    def left(self) -> None:
        """The node was asked to stop."""

    def broke(self) -> None:
        """The node cannot persist its state any more."""


class ModeCore:
    """Data of the state machine.

    :ivar mode: current mode, as reported to others.
    """

    def __init__(self) -> None:
        self.mode = Mode.DSC


_LIVE_MODES = (Mode.DSC, Mode.SEQ_RECOVERY, Mode.WRK, Mode.ERR)
_FINAL_MODES = (Mode.SHUTDOWN, Mode.PANIC)
_INPUTS = (
    ModeInputs.bootstrapped,
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
        (Mode.DSC, ModeInputs.bootstrapped, Mode.WRK),
        (Mode.DSC, ModeInputs.answered, Mode.SEQ_RECOVERY),
        (Mode.SEQ_RECOVERY, ModeInputs.caught_up, Mode.WRK),
        (Mode.SEQ_RECOVERY, ModeInputs.lost_quorum, Mode.ERR),
        (Mode.SEQ_RECOVERY, ModeInputs.bootstrapped, Mode.WRK),
        (Mode.WRK, ModeInputs.lost_quorum, Mode.ERR),
        (Mode.WRK, ModeInputs.fell_behind, Mode.SEQ_RECOVERY),
        (Mode.ERR, ModeInputs.answered, Mode.SEQ_RECOVERY),
        (Mode.ERR, ModeInputs.bootstrapped, Mode.WRK),
        *((mode, ModeInputs.left, Mode.SHUTDOWN) for mode in _LIVE_MODES),
        *((mode, ModeInputs.broke, Mode.PANIC) for mode in _LIVE_MODES),
    )
}
"""New mode by current mode and name of one of :class:`ModeInputs`. Other combinations change nothing."""


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
    """State machine of one node, with the reason for its current mode.

    :ivar since: time of the last change.
    :ivar is_final: whether the node stops or has stopped.
    """

    def __init__(self) -> None:
        self._core = ModeCore()
        self._inputs = _machine(self._core)
        self.reason = "it just started"
        self.since = 0.0
        self.is_final = False

    @property
    def mode(self) -> Mode:
        """Current mode."""
        return self._core.mode

    def fire(self, input_name: str, reason: str, now: float) -> bool:
        """Apply one of :class:`ModeInputs`; return whether the mode changed."""
        before = self.mode
        getattr(self._inputs, input_name)()
        if self.mode is before:
            return False
        self.reason, self.since = reason, now
        self.is_final = self.mode in _FINAL_MODES
        return True
