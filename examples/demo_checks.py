"""Comparison of published, delivered and journaled messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from demo_journals import Contents
from demo_network import SUBSCRIBERS, Network
from demo_story import Story

from fyrehose_twisted.ranges import RangeSet

SHOWN = 16
"""Digits of a hash that are shown."""


def check_streams(story: Story, network: Network, outcome: str, since: int = 0) -> RangeSet:
    """Wait until all messages have arrived, check them, and print the outcome and the details.

    :param outcome: outcome of the step if all checks pass.
    :param since: the last number of the act before.
    :return: the numbers above ``since`` that nobody got: their flights came under others.
    """
    reports, kept = network.reports(), network.kept()
    _check_subscribers(story, network, reports)
    _check_journals(story, reports, kept)
    lost = [RangeSet(tuple(hole) for hole in report["lost"] if hole[0] > since) for report in reports]
    nobody = common(lost)
    story.check("lost by some only", sum(numbers.count for numbers in lost) - SUBSCRIBERS * nobody.count)
    story.outcome(outcome)

    def at_each(field: str) -> str:
        return ", ".join(format(report[field], ",") for report in reports)

    links = network.links()
    story.detail("delivered in order", f"{at_each('messages')}, at {network.rate:,.0f} messages/s")
    story.detail("repaired", f"{at_each('repaired')}; repeats removed: {at_each('repeats')}")
    story.detail(
        "links", f"{links['forwarded']:,} datagrams passed, {links['lost']:,} lost, {links['reordered']:,} overtaken"
    )
    stream, source = reports[0]["in_stream_order"][:SHOWN], reports[0]["in_publishing_order"][:SHOWN]
    story.detail("SHA-256", f"{stream} of the stream, everywhere; {source} of the flights, as in the source")
    records, gone = (", ".join(f"{one:,}" for one in counts) for counts in zip(*(k[:2] for k in kept), strict=True))
    story.detail("journals", f"{records} records, SHA-256 {kept[0].sha256[:SHOWN]}; {gone} numbers lost")
    story.detail("numbers not delivered", f"{nobody.count}  {as_text(nobody)}".rstrip())
    return nobody


def _check_subscribers(story: Story, network: Network, reports: list[Any]) -> None:
    published = len(network.numbers)
    story.check("arrived twice", sum(report["twice"] for report in reports))
    story.check("lost", sum(published - report["messages"] for report in reports))
    story.check("different streams", len({report["in_stream_order"] for report in reports}) - 1)
    story.check("unlike the source", sum(report["in_publishing_order"] != network.source() for report in reports))


def _check_journals(story: Story, reports: list[Any], kept: list[Contents]) -> None:
    story.check("journals that differ", len({one.sha256 for one in kept}) - 1)
    expected = reports[0]["in_stream_order"]
    story.check("unlike subscribers", sum(one.in_stream_order != expected for one in kept))


def common(sets: Iterable[RangeSet]) -> RangeSet:
    """Return the numbers that are in all sets."""
    first, *others = sets
    for other in others:
        first = RangeSet(shared for one in first for shared in other.intersection(*one))
    return first


def as_text(numbers: Iterable[tuple[int, int]]) -> str:
    """Format ranges of numbers."""
    return ", ".join(f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in numbers)
