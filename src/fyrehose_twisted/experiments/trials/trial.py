"""Trial of ``tree-experiment``: grow trees, publish packets, kill nodes, and record the state after each stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, nan
from random import Random
from typing import Any

from fyrehose_twisted.errors import ConfigurationError, TooManyStreams
from fyrehose_twisted.experiments.measures.trees import trace_to_roots
from fyrehose_twisted.experiments.trials.experiment import TreeExperiment
from fyrehose_twisted.experiments.trials.sessions import parse_durations, read_sessions
from fyrehose_twisted.freenet.wire.location import KEY_SIZE
from fyrehose_twisted.sim.invariants import InvariantViolated

PACKET_SIZE = 100
"""Size of a packet in bytes."""
POLL_INTERVAL = 1.0
"""Simulated seconds between two checks for the outcome of a subscription, in networks that lose messages."""
CHURN_PROGRESS_STEPS = 20
"""Number of progress steps reported during churn."""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Plan of a trial, in the order of its steps. Times are simulated seconds.

    :ivar keys: number of streams.
    :ivar subscribers: random subscribers per stream.
    :ivar at_once: subscribe all at the same time; otherwise each subscriber waits for the previous one.
    :ivar packets: packets per stream by random subscribers, published after the trees have grown, after they have
        healed, and during churn.
    :ivar kill: share of the nodes that are killed at once.
    :ivar life: mean life of a node during churn; infinite for no churn.
    :ivar births: nodes that return per second; ``None`` for as many as die.
    :ivar swaps: attempted location swaps per second.
    :ivar duration: duration of churn and swapping.
    :ivar settle: settling time after each step in a network that loses messages, since it may never become quiet.
    :ivar sessions: distribution of the times for which nodes run, instead of ``life``; see
        :mod:`~fyrehose_twisted.experiments.trials.sessions`. Empty for none.
    :ivar pauses: distribution of the times for which they stay away; empty for that of ``sessions``.
    :ivar session_file: file of sessions to replay instead; empty for none.
    """

    keys: int = 1
    subscribers: int = 100
    at_once: bool = False
    packets: int = 1
    kill: float = 0.0
    life: float = inf
    births: float | None = None
    swaps: float = 0.0
    duration: float = 600.0
    settle: float = 120.0
    sessions: str = ""
    pauses: str = ""
    session_file: str = ""

    def __post_init__(self) -> None:
        for name, minimum in (("keys", 1), ("subscribers", 1), ("packets", 0)):
            if getattr(self, name) < minimum:
                raise ConfigurationError(f"{name}={getattr(self, name)}: give {minimum} or more")
        if not 0.0 <= self.kill < 1.0:
            raise ConfigurationError(f"kill={self.kill:g}: a share of the nodes goes from 0 up to, not including, 1")
        if not self.life > 0.0:
            raise ConfigurationError(f"life={self.life:g}: the life of a node must be more than 0 seconds")
        if sum((self.life < inf, bool(self.sessions), bool(self.session_file))) > 1:
            raise ConfigurationError("life, sessions and session_file exclude one another; give one of them")
        if self.pauses and not self.sessions:
            raise ConfigurationError("pauses require sessions")
        for text in filter(None, (self.sessions, self.pauses)):
            parse_durations(text)
        for name in ("births", "swaps", "duration", "settle"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < inf:
                raise ConfigurationError(f"{name}={value:g}: give a number of 0 or more")

    @property
    def has_churn(self) -> bool:
        """True if nodes die and return, or swap locations."""
        changes = self.life < inf or self.sessions or self.session_file or self.swaps > 0.0
        return self.duration > 0.0 and bool(changes)

    @property
    def steps(self) -> int:
        """Total number of progress steps."""
        rounds = 1 + (self.kill > 0.0) + self.has_churn
        return (
            self.keys * (self.subscribers + self.packets * rounds)
            + (self.kill > 0.0)
            + CHURN_PROGRESS_STEPS * self.has_churn
        )


@dataclass(frozen=True, slots=True)
class TrialStage:
    """State of a trial after one stage.

    :ivar name: ``grown``, ``published``, ``healed`` or ``churned``.
    :ivar at: simulated seconds since the start.
    :ivar up: number of running nodes.
    :ivar subscribers: running subscribers, summed over all streams.
    :ivar members: members of trees, summed over all streams.
    :ivar roots: mean number of members without a parent per key.
    :ivar reach: share of the subscribers that are in the largest tree of their key.
    """

    name: str
    at: float
    up: int
    subscribers: int
    members: int
    roots: float
    reach: float


class Trial:
    """Execution of a plan in an experiment. Random choices derive from the experiment's seed.

    :param on_progress: called with the current phase and the number of :attr:`TrialPlan.steps` completed.
    :ivar stages: states recorded so far.
    :ivar subscribed: subscriptions that succeeded at the first attempt, out of ``tried``.
    :ivar published: packets that were published, out of ``offered``.
    :ivar killed: number of nodes killed at once.
    :ivar violation: violated invariant at the end, ``None`` if all hold.
    :raises ConfigurationError: if there are not enough nodes, or the session file is malformed.
    :raises OSError: if the session file cannot be read.
    """

    def __init__(
        self,
        experiment: TreeExperiment,
        plan: TrialPlan,
        on_progress: Callable[[str, int], None] = lambda phase, steps: None,
    ) -> None:
        n = experiment.topology.n
        if plan.subscribers > n:
            raise ConfigurationError(
                f"subscribers={plan.subscribers:,}: the network has only {n:,} nodes; give fewer subscribers"
            )
        self.experiment = experiment
        self.plan = plan
        self.stages: list[TrialStage] = []
        self.tried = self.subscribed = self.offered = self.published = self.killed = 0
        self.violation: str | None = None
        self._on_progress = on_progress
        # Read now rather than after the trees have grown.
        self._sessions = (
            read_sessions(plan.session_file, experiment.topology.numbers_by_label()) if plan.session_file else []
        )
        self._rng = Random(f"{experiment.seed}/trial")
        self.keys = [self._rng.randbytes(KEY_SIZE) for _ in range(plan.keys)]

    def run(self) -> None:
        """Run all stages.

        :raises OperationalError: if the network does not become quiet.
        """
        self._grow()
        self._record_stage("grown")
        if self.plan.packets:
            self._publish()
            self._settle()
            self._record_stage("published")
        if self.plan.kill:
            self._kill()
        if self.plan.has_churn:
            self._churn()
        if not self.experiment.loss:
            # With message loss, neighbours may disagree for a while, which is not an error.
            try:
                self.experiment.check()
            except InvariantViolated as error:
                self.violation = " ".join(str(error).split())

    def _grow(self) -> None:
        n, plan, experiment = self.experiment.topology.n, self.plan, self.experiment
        for key in self.keys:
            for node in self._rng.sample(range(n), plan.subscribers):
                self.tried += 1
                try:
                    answer = experiment.subscribe(node, key)
                except TooManyStreams:
                    self._on_progress("subscribing", 1)
                    continue
                answer.addCallbacks(self._count_subscribed, _ignore_failure).addBoth(
                    lambda _: self._on_progress("subscribing", 1)
                )
                if not plan.at_once:
                    self._wait_for(answer)
        self._settle()

    def _count_subscribed(self, answer: object) -> None:
        self.subscribed += 1

    def _wait_for(self, answer: Any) -> None:
        experiment = self.experiment
        if not experiment.loss:
            experiment.run("quiet")
            return
        until = experiment.now + self.plan.settle
        while not answer.called and experiment.now < until:
            experiment.run(min(experiment.now + POLL_INTERVAL, until))

    def _publish(self) -> None:
        for _ in range(self.plan.packets):
            self._publish_to_all()
            self._settle()

    def _publish_to_all(self) -> None:
        for key in self.keys:
            subscribers = self.experiment.subscribers(key)
            self._on_progress("publishing", 1)
            if subscribers:
                self.offered += 1
                publisher = self._rng.choice(subscribers)
                answer = self.experiment.publish(publisher, key, self._rng.randbytes(PACKET_SIZE))
                answer.addCallbacks(self._count_published, _ignore_failure)

    def _count_published(self, number: int) -> None:
        self.published += 1

    def _kill(self) -> None:
        n = self.experiment.topology.n
        for node in self._rng.sample(range(n), round(self.plan.kill * n)):
            self.experiment.kill(node)
            self.killed += 1
        self._settle()
        self._on_progress("healing", 1)
        self._publish()
        self._record_stage("healed")

    def _churn(self) -> None:
        plan, experiment, began = self.plan, self.experiment, self.experiment.now
        n = experiment.topology.n
        processes: list[Any] = []
        if plan.life < inf:
            births = n / plan.life if plan.births is None else plan.births
            processes.append(experiment.churn(births, plan.life))
        elif plan.sessions:
            lives = parse_durations(plan.sessions)
            processes.append(experiment.sessions(lives, parse_durations(plan.pauses) if plan.pauses else lives))
        elif plan.session_file:
            processes.append(experiment.replay(self._sessions))
        if plan.swaps:
            processes.append(experiment.swapping(plan.swaps))
        for when, publishes in self._churn_schedule():
            experiment.run(began + plan.duration * when)
            if publishes:
                self._publish_to_all()
            else:
                self._on_progress("churning", 1)
        for process in processes:
            process.stop()
        self._settle()
        self._record_stage("churned")

    def _churn_schedule(self) -> Iterator[tuple[float, bool]]:
        """Return points in the churn as shares of its duration, and whether packets are published there."""
        packets = self.plan.packets
        yield from sorted(
            [((index + 1) / (packets + 1), True) for index in range(packets)]
            + [((index + 1) / CHURN_PROGRESS_STEPS, False) for index in range(CHURN_PROGRESS_STEPS)]
        )

    def _settle(self) -> None:
        if not self.experiment.loss:
            self.experiment.run("quiet")
        else:
            self.experiment.run(self.experiment.now + self.plan.settle)

    def _record_stage(self, name: str) -> None:
        experiment = self.experiment
        subscribers = members = reached = roots = kept = 0
        for key in self.keys:
            tree, wanted = experiment.tree(key), experiment.subscribers(key)
            tops, _, _ = trace_to_roots(tree)
            subscribers += len(wanted)
            members += len(tree)
            reached += max(Counter(tops[node] for node in wanted if node in tops).values(), default=0)
            if wanted:
                kept += 1
                roots += sum(parent is None for parent in tree.values())
        up = sum(experiment.is_up(node) for node in range(experiment.topology.n))
        reach = reached / subscribers if subscribers else nan
        stage = TrialStage(name, experiment.now, up, subscribers, members, roots / kept if kept else nan, reach)
        self.stages.append(stage)


def _ignore_failure(failure: object) -> None:
    """Ignore a failure; only successes are counted."""
