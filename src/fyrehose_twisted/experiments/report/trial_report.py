"""Report of ``tree-experiment`` on a trial as text, CSV or JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import IO, Any

from fyrehose_twisted.experiments.trials.trial import Trial
from fyrehose_twisted.wording import pluralize

METRIC_DESCRIPTIONS = {
    "keys": "streams with subscribers",
    "subscribers": "running subscribers, summed over all streams",
    "members": "members of trees, summed over all streams",
    "members_per_subscriber": "members per subscriber",
    "roots_per_key": "roots of a stream; with one, it is one tree",
    "reach": "share of the subscribers that are in the largest tree of their stream",
    "subscribe_success": "share of the subscriptions that succeeded at the first attempt",
    "subscribe_hops": "links from a new subscriber to its root",
    "subscribe_requests_first": "times that the first request for a stream was sent",
    "subscribe_requests_later": "the same, for all other requests",
    "subscribe_messages_first": "messages of the first subscription to a stream",
    "subscribe_messages_later": "the same, for all other subscriptions",
    "overload_rate": "share of the requests that were answered as overloaded",
    "depth_mean": "links from a subscriber to its root, mean",
    "depth_max": "the same, maximum",
    "stretch": "depth divided by the length of the shortest path to the root",
    "link_stress_mean": "trees that a link belongs to, over links that belong to any",
    "link_stress_max": "the same, maximum",
    "fan_out_mean": "children of a member that has any",
    "fan_out_max": "the same, maximum",
    "streams_per_node_mean": "streams of a node that has any",
    "streams_per_node_max": "the same, maximum",
    "cycles": "members that are in a cycle",
    "delivery_ratio": "share of the due deliveries that arrived",
    "duplicates": "duplicate packets per delivery",
    "latency_p50": "seconds from publishing to delivery, median",
    "latency_p99": "the same, 99th percentile",
    "repair_time_p50": "seconds without a parent after losing it, median",
    "repair_time_p99": "the same, 99th percentile",
    "repair_requests": "resubscribe requests sent per lost parent, including voluntary ones",
    "repair_restarted": "restart announcements per lost parent, including voluntary restarts",
    "lost_in_repair": "missing deliveries of packets published after the first fault",
    "restarts_per_stream_hour": "restarts per hour of membership, including probes of roots",
    "messages": "messages sent",
    "simulated": "simulated seconds",
}
"""Description of each metric, in the order of the report."""


class TrialReport:
    """Report on a finished trial.

    :ivar metrics: metrics of the experiment, in the order of :data:`METRIC_DESCRIPTIONS`.
    """

    def __init__(self, trial: Trial) -> None:
        measured = trial.experiment.metrics()
        self.metrics = {name: measured[name] for name in METRIC_DESCRIPTIONS}
        self._trial = trial

    def row(self) -> dict[str, object]:
        """Return settings and results by column name. The columns are the same for all trials."""
        trial, experiment = self._trial, self._trial.experiment
        plan = asdict(trial.plan)
        return {
            "topology": experiment.topology.name,
            "nodes": experiment.topology.n,
            "links": experiment.topology.links,
            "seed": experiment.seed,
            "loss": experiment.loss,
            # The prefix avoids clashes with metrics.
            **{f"course_{name}": value for name, value in plan.items()},
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
        """Write a heading and a row of values; missing values are empty."""
        write_rows([self.row()], out, heading=heading)

    def write_json(self, out: IO[str]) -> None:
        """Write an object with ``row`` and ``stages``; missing values are ``null``."""
        stages = [replace_non_finite(asdict(stage)) for stage in self._trial.stages]
        json.dump({"row": replace_non_finite(self.row()), "stages": stages}, out, indent=1, allow_nan=False)
        out.write("\n")

    def lines(self) -> Iterator[str]:
        """Return a table of the stages, and all metrics, as lines of text."""
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
            yield f"{name:{width}}  {format_value(value):>11}  {METRIC_DESCRIPTIONS[name]}"
        yield ""

    def summary(self) -> str:
        """Return a summary in one sentence."""
        trial, metrics = self._trial, self.metrics
        keys = len(trial.keys)
        parts = [
            f"{trial.subscribed:,} of {pluralize(trial.tried, 'subscription')} to {pluralize(keys, 'key')}",
            f"{format_value(metrics['roots_per_key'])} {'root' if metrics['roots_per_key'] == 1 else 'roots'} a key",
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


def write_rows(rows: Sequence[Mapping[str, object]], out: IO[str], *, heading: bool = True) -> None:
    """Write a heading and rows of the same columns as CSV; missing values are empty."""
    lines = csv.writer(out, lineterminator="\n")
    if heading:
        lines.writerow(rows[0])
    for row in rows:
        lines.writerow(["" if value is None or value != value else value for value in row.values()])


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells)).rstrip()


def format_value(value: float) -> str:
    """Return a value of a metric as text, ``-`` for nan."""
    if value != value:
        return "-"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3f}"


def _format_percent(share: float) -> str:
    # Rounded down, so that 100 % means all.
    return "none" if share != share else f"{int(share * 1_000) / 10:g} %"


def replace_non_finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return values of which those that JSON cannot express are ``None``."""
    return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()}
