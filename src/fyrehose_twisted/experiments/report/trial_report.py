"""What ``tree-experiment`` tells of a trial: as text to read, as a row of CSV, or as JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from typing import IO, Any

from fyrehose_twisted.experiments.trials.trial import Trial
from fyrehose_twisted.wording import pluralize

METRIC_DESCRIPTIONS = {
    "keys": "streams that somebody wants",
    "subscribers": "subscribers that run, of all streams together",
    "members": "nodes that have a stream, of all streams together",
    "members_per_subscriber": "members by subscribers",
    "roots_per_key": "roots of a stream; with one, it is one tree",
    "reach": "share of the subscribers that are in the largest tree of their stream",
    "subscribe_success": "share of the subscriptions that succeeded at once",
    "subscribe_hops": "links from a new subscriber to its root",
    "subscribe_requests_first": "times that a request was passed on, the first for its stream",
    "subscribe_requests_later": "the same, of all others",
    "subscribe_messages_first": "messages of a subscription, the first for its stream",
    "subscribe_messages_later": "the same, of all others",
    "overload_rate": "share of the requests that were answered with: no room",
    "depth_mean": "links from a subscriber to its root, on average",
    "depth_max": "the same, at most",
    "stretch": "depth by links of the shortest way to the root",
    "link_stress_mean": "trees that a link belongs to, of links that belong to any",
    "link_stress_max": "the same, at most",
    "fan_out_mean": "children of a member that has any",
    "fan_out_max": "the same, at most",
    "streams_per_node_mean": "streams of a node that has any",
    "streams_per_node_max": "the same, at most",
    "cycles": "members that are above themselves",
    "delivery_ratio": "share of the due deliveries that came",
    "duplicates": "packets that came to a node again, by delivery",
    "latency_p50": "seconds from publishing to delivery, half take no longer",
    "latency_p99": "the same, 99 of 100 take no longer",
    "repair_time_p50": "seconds without a parent after losing it, half take no longer",
    "repair_time_p99": "the same, 99 of 100 take no longer",
    "repair_requests": "times that a resubscription was passed on, by lost parent; voluntary ones too",
    "repair_restarted": "notices to a subtree, by lost parent; of voluntary restarts too",
    "lost_in_repair": "due deliveries that are missing, of packets published after something broke",
    "restarts_per_stream_hour": "restarts in an hour of membership; looks of roots for a better one too",
    "messages": "messages that were sent",
    "simulated": "seconds that passed in the network",
}
"""What each metric is, in the order in which they are told."""


class TrialReport:
    """What is told of a trial that has run.

    :ivar metrics: of the experiment, in the order of :data:`METRIC_DESCRIPTIONS`.
    """

    def __init__(self, trial: Trial) -> None:
        measured = trial.experiment.metrics()
        self.metrics = {name: measured[name] for name in METRIC_DESCRIPTIONS}
        self._trial = trial

    def row(self) -> dict[str, object]:
        """Return everything by name of its column: what was done, what came of it. Names do not depend on anything."""
        trial, experiment = self._trial, self._trial.experiment
        course = asdict(trial.plan)
        return {
            "topology": experiment.topology.name,
            "nodes": experiment.topology.n,
            "links": experiment.topology.links,
            "seed": experiment.seed,
            "loss": experiment.loss,
            # There are metrics with these names.
            **{f"course_{name}": value for name, value in course.items()},
            **{f"policy_{name}": value for name, value in asdict(experiment.policy).items()},
            "tried": trial.tried,
            "subscribed": trial.subscribed,
            "offered": trial.offered,
            "published": trial.published,
            "killed": trial.killed,
            **self.metrics,
            "violation": trial.violation,
        }

    def write_csv(self, out: IO[str], *, heading: bool = True) -> None:
        """Write a line with the names of the columns, and one with the values; what there is nothing of is empty."""
        row = self.row()
        lines = csv.writer(out, lineterminator="\n")
        if heading:
            lines.writerow(row)
        lines.writerow(["" if value is None or value != value else value for value in row.values()])

    def write_json(self, out: IO[str]) -> None:
        """Write one object: ``row`` and ``stages``; what there is nothing of is ``null``."""
        stages = [_replace_non_finite(asdict(stage)) for stage in self._trial.stages]
        json.dump({"row": _replace_non_finite(self.row()), "stages": stages}, out, indent=1, allow_nan=False)
        out.write("\n")

    def lines(self) -> Iterator[str]:
        """Return text: how far it came when, and all metrics."""
        topology = self._trial.experiment.topology
        yield f"{topology.name}: {pluralize(topology.n, 'node')}, {pluralize(topology.links, 'link')}"
        yield ""
        head = ("", "seconds", "running", "subscribers", "members", "roots a key", "reach")
        rows = [
            (
                stage.name,
                f"{stage.at:,.1f}",
                f"{stage.up:,}",
                f"{stage.subscribers:,}",
                f"{stage.members:,}",
                f"{stage.roots:.2f}",
                f"{stage.reach:.3f}",
            )
            for stage in self._trial.stages
        ]
        yield from _table([head, *rows])
        yield ""
        width = max(map(len, self.metrics))
        for name, value in self.metrics.items():
            yield f"{name:{width}}  {_format_value(value):>11}  {METRIC_DESCRIPTIONS[name]}"
        yield ""

    def summary(self) -> str:
        """Return what was achieved."""
        trial, metrics = self._trial, self.metrics
        keys = len(trial.keys)
        parts = [
            f"{trial.subscribed:,} of {pluralize(trial.tried, 'subscription')} to {pluralize(keys, 'key')}",
            f"{_format_value(metrics['roots_per_key'])} {'root' if metrics['roots_per_key'] == 1 else 'roots'} a key",
            f"{_format_percent(metrics['reach'])} of the subscribers in the largest tree",
        ]
        if trial.offered:
            parts.append(
                f"{trial.published:,} of {pluralize(trial.offered, 'packet')} published,"
                f" {_format_percent(metrics['delivery_ratio'])} of the deliveries came"
            )
        if trial.violation is not None:
            holds = f"but {trial.violation}"
        elif trial.experiment.loss:
            holds = "trees were not checked, since messages were lost"
        else:
            holds = "all trees hold"
        return f"{'; '.join(parts)}; {holds}."


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells)).rstrip()


def _format_value(value: float) -> str:
    if value != value:
        return "-"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3f}"


def _format_percent(share: float) -> str:
    # Down, so that 100 % are all of them.
    return "none" if share != share else f"{int(share * 1_000) / 10:g} %"


def _replace_non_finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()}
