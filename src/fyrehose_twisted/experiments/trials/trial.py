"""What ``tree-experiment`` does with a network: trees grow, packets are published, nodes die, and it is seen what is
left."""

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
from fyrehose_twisted.freenet.wire.location import KEY_SIZE
from fyrehose_twisted.sim.invariants import InvariantViolated

PACKET_SIZE = 100
"""Bytes of a packet."""
POLL_INTERVAL = 1.0
"""Simulated seconds between two looks whether a subscription has come to something, where messages are lost."""
CHURN_PROGRESS_STEPS = 20
"""Pieces that the time of a churn is passed in at least, so that one sees that it passes."""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What is done, in this order. Times are simulated seconds.

    :ivar keys: streams.
    :ivar subscribers: nodes that subscribe to each, drawn anew for each.
    :ivar at_once: whether all subscribe at the same moment; otherwise each waits for the one before.
    :ivar packets: packets of each stream, by subscribers that are drawn: when the trees have grown, again when they
        have healed, and again while nodes come and go.
    :ivar kill: share of the nodes that is killed, all at once.
    :ivar life: how long a node lives on average while nodes come and go; infinite if they do not.
    :ivar births: nodes that come back in a second; ``None``: as many as die.
    :ivar swaps: swaps of locations that are tried in a second.
    :ivar duration: how long nodes come and go, or swap.
    :ivar settle: how long a network is given to become quiet that never need do so, because it loses messages.
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

    def __post_init__(self) -> None:
        for name, least in (("keys", 1), ("subscribers", 1), ("packets", 0)):
            if getattr(self, name) < least:
                raise ConfigurationError(f"{name}={getattr(self, name)}: give {least} or more")
        if not 0.0 <= self.kill < 1.0:
            raise ConfigurationError(f"kill={self.kill:g}: a share of the nodes goes from 0 up to, not including, 1")
        if not self.life > 0.0:
            raise ConfigurationError(f"life={self.life:g}: nodes live for more than 0 seconds")
        for name in ("births", "swaps", "duration", "settle"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < inf:
                raise ConfigurationError(f"{name}={value:g}: give a number that is 0 or more")

    @property
    def has_churn(self) -> bool:
        """Whether nodes come and go, or swap locations."""
        return self.duration > 0.0 and (self.life < inf or self.swaps > 0.0)

    @property
    def steps(self) -> int:
        """What is reported of it as progress, in all."""
        rounds = 1 + (self.kill > 0.0) + self.has_churn
        return (
            self.keys * (self.subscribers + self.packets * rounds)
            + (self.kill > 0.0)
            + CHURN_PROGRESS_STEPS * self.has_churn
        )


@dataclass(frozen=True, slots=True)
class TrialStage:
    """How far a trial has come.

    :ivar name: ``grown``, ``published``, ``healed``, ``churned``.
    :ivar at: simulated seconds since the start.
    :ivar up: nodes that run.
    :ivar subscribers: of all streams together, those that run.
    :ivar members: nodes that have a stream, of all streams together.
    :ivar roots: members without a parent, by key.
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
    """A course in a network. What is drawn comes from the seed of the experiment.

    :param passed: told of progress: a word for what is done, and how many of :attr:`TrialPlan.steps` were taken.
    :ivar stages: how far it has come.
    :ivar subscribed: subscriptions that succeeded at the first attempt, of ``tried``.
    :ivar published: packets that got a number, of ``offered``.
    :ivar killed: nodes that were killed at once.
    :ivar violation: what does not hold at the end, ``None`` if everything does.
    :raises ConfigurationError: if there are not enough nodes.
    """

    def __init__(
        self,
        experiment: TreeExperiment,
        plan: TrialPlan,
        on_progress: Callable[[str, int], None] = lambda what, steps: None,
    ) -> None:
        n = experiment.topology.n
        if plan.subscribers > n:
            raise ConfigurationError(f"subscribers={plan.subscribers:,}: there are only {n:,} nodes; give fewer")
        self.experiment = experiment
        self.plan = plan
        self.stages: list[TrialStage] = []
        self.tried = self.subscribed = self.offered = self.published = self.killed = 0
        self.violation: str | None = None
        self._on_progress = on_progress
        self._rng = Random(f"{experiment.seed}/trial")
        self.keys = [self._rng.randbytes(KEY_SIZE) for _ in range(plan.keys)]

    def run(self) -> None:
        """Do all of it.

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
            # Where messages are lost, neighbours disagree for a while; that is no fault.
            try:
                self.experiment.check()
            except InvariantViolated as error:
                self.violation = " ".join(str(error).split())

    def _grow(self) -> None:
        n, course, experiment = self.experiment.topology.n, self.plan, self.experiment
        for key in self.keys:
            for node in self._rng.sample(range(n), course.subscribers):
                self.tried += 1
                try:
                    answer = experiment.subscribe(node, key)
                except TooManyStreams:
                    self._on_progress("subscribing", 1)
                    continue
                answer.addCallbacks(self._count_subscribed, _ignore_failure).addBoth(
                    lambda _: self._on_progress("subscribing", 1)
                )
                if not course.at_once:
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
        course, experiment, began = self.plan, self.experiment, self.experiment.now
        n = experiment.topology.n
        moving: list[Any] = []
        if course.life < inf:
            births = n / course.life if course.births is None else course.births
            moving.append(experiment.churn(births, course.life))
        if course.swaps:
            moving.append(experiment.swapping(course.swaps))
        for when, publishes in self._churn_schedule():
            experiment.run(began + course.duration * when)
            if publishes:
                self._publish_to_all()
            else:
                self._on_progress("churning", 1)
        for one in moving:
            one.stop()
        self._settle()
        self._record_stage("churned")

    def _churn_schedule(self) -> Iterator[tuple[float, bool]]:
        """Return shares of the time of a churn, and whether packets are published then or it only passes."""
        packets = self.plan.packets
        yield from sorted(
            [((one + 1) / (packets + 1), True) for one in range(packets)]
            + [((one + 1) / CHURN_PROGRESS_STEPS, False) for one in range(CHURN_PROGRESS_STEPS)]
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
    """It is counted, as what did not succeed."""
