"""What a node is at, and what makes that change (document 004, "Discovery phase" to "Work phase").

:data:`MOVES` is the whole of it; ``docs/one-order.md`` shows it as a drawing that ``docs/diagrams.py`` makes of that.
"""

from __future__ import annotations

from typing import Protocol

from automat import TypeMachineBuilder

from fyrehose_twisted.parcels.wire.messages import Mode


class Phases(Protocol):
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


class Phase:
    """Where a node is.

    :ivar mode: what others are told.
    """

    def __init__(self) -> None:
        self.mode = Mode.DSC


_LIVES = (Mode.DSC, Mode.SEQ_RECOVERY, Mode.WRK, Mode.ERR)
_ENDS = (Mode.SHUTDOWN, Mode.PANIC)
_CAUSES = (
    Phases.founded,
    Phases.answered,
    Phases.caught_up,
    Phases.fell_behind,
    Phases.lost_quorum,
    Phases.left,
    Phases.broke,
)

MOVES: dict[tuple[Mode, str], Mode] = {
    (mode, cause.__name__): target
    for mode, cause, target in (
        (Mode.DSC, Phases.founded, Mode.WRK),
        (Mode.DSC, Phases.answered, Mode.SEQ_RECOVERY),
        (Mode.SEQ_RECOVERY, Phases.caught_up, Mode.WRK),
        (Mode.SEQ_RECOVERY, Phases.lost_quorum, Mode.ERR),
        (Mode.SEQ_RECOVERY, Phases.founded, Mode.WRK),
        (Mode.WRK, Phases.lost_quorum, Mode.ERR),
        (Mode.WRK, Phases.fell_behind, Mode.SEQ_RECOVERY),
        (Mode.ERR, Phases.answered, Mode.SEQ_RECOVERY),
        (Mode.ERR, Phases.founded, Mode.WRK),
        *((mode, Phases.left, Mode.SHUTDOWN) for mode in _LIVES),
        *((mode, Phases.broke, Mode.PANIC) for mode in _LIVES),
    )
}
"""Where each of :class:`Phases` leads from each mode. What is not here changes nothing."""


def _make() -> TypeMachineBuilder[Phases, Phase]:
    builder = TypeMachineBuilder(Phases, Phase)
    states = {mode: builder.state(mode.value) for mode in _LIVES + _ENDS}
    for mode, state in states.items():
        for cause in _CAUSES:
            target = MOVES.get((mode, cause.__name__), mode)
            _transition(state, cause, states[target], target)
    return builder


def _transition(state: object, cause: object, to: object, mode: Mode) -> None:
    @state.upon(cause).to(to)  # type: ignore[attr-defined, untyped-decorator]  # Its types are made for literal states.
    def go(phases: Phases, phase: Phase) -> None:
        phase.mode = mode


_machine = _make().build()


class Modes:
    """The machine, and why it is where it is."""

    def __init__(self) -> None:
        self._phase = Phase()
        self._phases = _machine(self._phase)
        self.why = "it just started"
        self.since = 0.0

    @property
    def mode(self) -> Mode:
        """What the node is at."""
        return self._phase.mode

    def happened(self, what: str, why: str, now: float) -> bool:
        """Something of :class:`Phases` happened; returns whether the node is at something else now."""
        before = self.mode
        getattr(self._phases, what)()
        if self.mode is before:
            return False
        self.why, self.since = why, now
        return True
