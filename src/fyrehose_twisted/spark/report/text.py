"""Texts of the report: findings, verdict, times and names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from fyrehose_twisted.spark.report.page_data import ReportData, severity
from fyrehose_twisted.wording import pluralize

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FindingText(NamedTuple):
    """Name of a kind of finding and its sentence, in which ``{numbers}`` stands for the count."""

    name: str
    text: str


FINDING_TEXTS = {
    "divergence/payload": FindingText("payloads differ", "{numbers} with payloads that differ"),
    "missing/nobody": FindingText("in no journal", "{numbers} in no journal"),
    "missing/damaged": FindingText("damaged", "{numbers} damaged in a journal"),
    "missing/lost": FindingText("lost", "{numbers} declared lost by a journal"),
    "order/segment": FindingText("segment out of order", "{numbers} out of order in a segment that should be in order"),
    "order/epoch": FindingText("after a later epoch", "{numbers} received after a later epoch had begun"),
    "clock/backwards": FindingText("clock went back", "{numbers} where the clock of a journal went back"),
    "duplicate/stored-twice": FindingText("stored twice", "{numbers} that a journal stores more than once"),
    "missing/before": FindingText("before its beginning", "{numbers} before the beginning of a journal"),
    "missing/after": FindingText("beyond its end", "{numbers} that a journal has not reached yet, and another has"),
}


def finding_text(kind: str, reason: str) -> FindingText:
    """Describe a finding; fall back to its kind and reason."""
    return FINDING_TEXTS.get(
        f"{kind}/{reason}", FindingText(f"{kind}: {reason}", f"{{numbers}} of kind {kind}: {reason}")
    )


@dataclass(frozen=True)
class Verdict:
    """Overall result.

    :ivar level: ``good``, ``losses``, ``divergence``, or ``unknown`` if nothing was compared.
    :ivar sentences: sentences with the figures.
    :ivar findings: one sentence per kind of finding, most severe first.
    """

    level: str
    headline: str
    sentences: list[str]
    findings: list[str]


def summary_verdict(found: ReportData) -> Verdict:
    """Build the verdict from the figures in ``verify.json``, or else from the tables."""
    verdicts = [one for _, one in found.tables.verdicts]
    totals = _sum_findings(_recorded_findings(verdicts) if verdicts else _grouped_findings(found))
    if verdicts:
        status = max(int(one.get("status") or 0) for one in verdicts)
    else:
        kinds = {key.partition("/")[0] for key in totals}
        status = 2 if kinds & {"divergence", "order"} else 1 if "missing" in kinds else 0
    compared = bool(verdicts) or found.tables.has("findings")
    listed = []
    for key in sorted(totals, key=lambda key: severity(*key.split("/", 1))):
        runs, numbers = totals[key]
        if runs or numbers:
            text = finding_text(*key.split("/", 1)).text.format(numbers=pluralize(numbers, "number"))
            listed.append(f"{text}, in {pluralize(runs, 'run')}")
    level = ("good", "losses", "divergence")[min(status, 2)] if compared else "unknown"
    return Verdict(level, _headline(found, level, totals), [*_compared(verdicts), *_refined(found)], listed)


def _recorded_findings(verdicts: Sequence[dict[str, Any]]) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, runs and numbers of each finding in ``verify.json``."""
    for one in verdicts:
        for key, count in (one.get("findings") or {}).items():
            yield key, int(count.get("runs") or 0), int(count.get("numbers") or 0)


def _grouped_findings(found: ReportData) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, runs and numbers of each group in the tables."""
    for group in found.groups:
        yield f"{group.kind}/{group.reason}", group.runs, group.numbers


def _sum_findings(findings: Iterable[tuple[str, int, int]]) -> dict[str, tuple[int, int]]:
    """Return the runs and numbers of each kind of finding."""
    totals: dict[str, tuple[int, int]] = {}
    for key, runs, numbers in findings:
        known_runs, known_numbers = totals.get(key, (0, 0))
        totals[key] = known_runs + runs, known_numbers + numbers
    return totals


def _headline(found: ReportData, level: str, totals: dict[str, tuple[int, int]]) -> str:
    nobody = totals.get("missing/nobody", (0, 0))[1]
    alone = len({str(one.get("journal")) for _, all in found.tables.verdicts for one in all.get("journals", [])}) == 1
    numbers = pluralize(nobody, "number")
    if level == "divergence":
        return _divergence_headline(totals, alone)
    if level == "losses":
        return _losses_headline(totals, nobody, alone)
    if level == "good":
        return "The journal has every number." if alone else "The journals agree, and together they have every number."
    if found.silver_epochs or found.streams:
        return f"Not compared. {f'{numbers} {_is(nobody)} in no journal.' if nobody else 'No gap is known.'}"
    return "There is nothing in these tables yet."


def _divergence_headline(totals: dict[str, tuple[int, int]], alone: bool) -> str:
    differ = totals.get("divergence/payload", (0, 0))[1]
    if not differ:
        return f"The order of {pluralize(_count_numbers(totals, 'order'), 'number')} is wrong; payloads agree."
    whom = "The journal disagrees with itself" if alone else "The journals disagree"
    return f"{whom} on {pluralize(differ, 'number')}."


def _losses_headline(totals: dict[str, tuple[int, int]], nobody: int, alone: bool) -> str:
    if alone:
        return f"The journal lacks {pluralize(nobody or _count_numbers(totals, 'missing'), 'number')}."
    if nobody:
        return f"{pluralize(nobody, 'number')} {_is(nobody)} in no journal; what the journals have agrees."
    return "Each journal lacks something, or one does; together they have every number, and they agree."


def _count_numbers(totals: dict[str, tuple[int, int]], kind: str) -> int:
    return sum(count for key, (_, count) in totals.items() if key.startswith(f"{kind}/"))


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _compared(verdicts: Sequence[dict[str, Any]]) -> list[str]:
    sentences = []
    for one in verdicts:
        journals = one.get("journals", [])
        streams = {str(journal.get("stream")) for journal in journals}
        names = {str(journal.get("journal")) for journal in journals}
        text = f"{pluralize(int(one.get('records') or 0), 'record')} compared"
        text += f" in {pluralize(len(names), 'journal')} of {pluralize(len(streams), 'stream')}"
        if isinstance(one.get("seconds"), int | float):
            text += f", in {one['seconds']:,.1f} s"
        sentences.append(text + ".")
    return sentences


def _refined(found: ReportData) -> list[str]:
    sentences = []
    if found.silver_epochs:
        rows, lost = (sum(getattr(one, name) for one in found.silver_epochs) for name in ("rows", "lost"))
        late, repeats = (sum(getattr(one, name) for one in found.silver_epochs) for name in ("late", "repeats"))
        sentences.append(
            f"Refined: {pluralize(rows, 'number')}, of which {lost:,} lost and {repeats:,} repeated; "
            f"{pluralize(late, 'copy', 'copies')} came late and filled gaps."
        )
    messages = sum(one.messages for one in found.streams)
    if messages:
        size = sum(one.bytes for one in found.streams)
        sentences.append(f"Traffic: {pluralize(messages, 'message')}, {pluralize(size, 'byte')}.")
    return sentences


def format_utc(micros: int, *, seconds: bool = True) -> str:
    """Format a time like ``2026-01-31 12:00:00``; a year out of range becomes seconds after 1970."""
    try:
        return (EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")
    except OverflowError:
        return f"{micros / 1e6:.6g} s after 1970"


def format_delay(micros: float) -> str:
    """Format a delay in a suitable unit."""
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if abs(micros) >= size:
            return f"{micros / size:,.3g} {unit}" if abs(micros) < 1_000 * size else f"{micros / size:,.0f} {unit}"
    return f"{micros:.0f} µs"


def format_length(micros: int) -> str:
    """Format a duration like ``10 s``, ``5 min``, ``2 h`` or ``3 d``."""
    for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
        if micros >= size and (unit == "s" or micros % size == 0):
            return f"{micros / size:g} {unit}"
    return format_delay(micros)


def ellipsize(text: str, max_length: int = 44) -> str:
    """Shorten a text in the middle to at most ``max_length`` characters."""
    return text if len(text) <= max_length else f"{text[: (max_length - 1) // 2]}…{text[len(text) - max_length // 2 :]}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Map names, possibly long paths, to the parts in which they differ."""
    known = list(dict.fromkeys(names))
    if len(known) < 2 or not all("/" in name for name in known):
        return {name: ellipsize(name) for name in known}
    parts = [name.split("/") for name in known]
    before = _common_prefix_length(parts)
    after = _common_prefix_length([part[before:][::-1] for part in parts])
    made = ["/".join(part[before : len(part) - after]) for part in parts]
    if not all(made) or len(set(made)) < len(made):
        return {name: ellipsize(name) for name in known}
    return {name: ellipsize(text) for name, text in zip(known, made, strict=True)}


def _common_prefix_length(parts: Sequence[Sequence[str]]) -> int:
    """Return the length of the common prefix."""
    return next(
        (index for index, some in enumerate(zip(*parts, strict=False)) if len(set(some)) > 1), min(map(len, parts))
    )
