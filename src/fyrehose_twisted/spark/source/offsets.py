"""Offsets of journals in a checkpoint.

An offset is ``{"journals": {KEY: {STREAM: {EPOCH: NEXT}}}, "tags": {KEY: {STREAM: TAG}}}``, where NEXT is the first
number that was not read. KEY is what :func:`journal_key` returns, which does not depend on how the place of a journal
is written. An older epoch may still grow after a newer one has begun, so each is kept. Where a batch is the first that
has something of an epoch, ``"begins"`` says likewise which number it begins with: the journal may have dropped that
before the batch is read again.

Earlier releases wrote no tags, and the place as KEY.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.format.segment_header import different_tags
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, parse_server_address

Offset = dict[str, Any]
EpochKey = tuple[str, str, int]
"""Key of a journal, stream and epoch."""

_LOOPBACK_HOSTS = {"localhost", "127.0.0.1", "::1"}


class UnknownJournal(OperationalError):
    """A query was reading a journal that is not among those that it is to read now."""


class Checkpoint(NamedTuple):
    """Parsed offset."""

    ends: dict[EpochKey, int]
    begins: dict[EpochKey, int]
    tags: dict[tuple[str, str], int] | None
    """By key and stream; ``None`` if an earlier release wrote it."""


def journal_key(origin: JournalLocation) -> str:
    """Return what tells a journal from others of its stream: its name if a user gave one, else its tag, or its place if
    the tag is not known."""
    if origin.name:
        return origin.name
    return origin.journal if origin.tag is None else f"{origin.tag:08x}"


def check_distinct(origins: Iterable[JournalLocation]) -> None:
    """Check that no two journals have the same key.

    :raises ConfigurationError: if so: they are copies of one.
    """
    known: dict[tuple[str, str], JournalLocation] = {}
    for origin in origins:
        other = known.setdefault((journal_key(origin), origin.stream), origin)
        if other is not origin:
            raise ConfigurationError(
                f"{other.journal} and {origin.journal} are copies of one journal of {origin.stream}, and a query cannot"
                " follow both: read one of them"
            )


def make_offset(
    ends: Mapping[EpochKey, int], origins: Iterable[JournalLocation], known: Checkpoint | None = None
) -> Offset:
    """Return the offset that says how far journals were read.

    :param known: an earlier one, of which the tags of journals that are not among ``origins`` are kept.
    """
    tags = dict((known.tags if known is not None else None) or {})
    tags |= {(journal_key(origin), origin.stream): origin.tag for origin in origins if origin.tag is not None}
    named: dict[str, dict[str, str]] = {}
    for key, stream in sorted({key[:2] for key in ends}):
        if (key, stream) in tags:
            named.setdefault(key, {})[stream] = f"{tags[key, stream]:08x}"
    return {"journals": group_by_journal(ends), "tags": named}


def group_by_journal(ends: Mapping[EpochKey, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return numbers as an offset has them."""
    journals: dict[str, dict[str, dict[str, int]]] = {}
    for (journal, stream, epoch), next in sorted(ends.items()):
        journals.setdefault(journal, {}).setdefault(stream, {})[str(epoch)] = next
    return journals


def parse_offset(offset: Offset) -> Checkpoint:
    """Return what an offset says. :raises JournalError: if it is none of this source."""
    try:
        tags = offset.get("tags")
        return Checkpoint(
            _flatten(offset["journals"]),
            _flatten(offset.get("begins", {})),
            None
            if tags is None
            else {(key, stream): int(tag, 16) for key, streams in tags.items() for stream, tag in streams.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise JournalError(f"the checkpoint has the offset {offset!r}, which is none of this source") from None


def resolve_offset(offset: Offset, origins: Sequence[JournalLocation], *, fail_on_data_loss: bool) -> Checkpoint:
    """Return what an offset says, by the keys that journals have now: one may have got a name since, or was moved.

    :param fail_on_data_loss: whether a journal that is not there any more, or is another by now, ends the query; else
        the former is passed over, and the latter read from its beginning.
    :raises UnknownJournal: if it does.
    :raises JournalError: if the offset is none of this source.
    """
    known = parse_offset(offset)
    renamed: dict[tuple[str, str], tuple[str, str] | None] = {}
    for key, stream in {key[:2]: None for key in (*known.ends, *known.begins)}:
        here = [origin for origin in origins if origin.stream == stream]
        tag = None if known.tags is None else known.tags.get((key, stream))
        found = next((origin for origin in here if journal_key(origin) == key), None)
        if found is not None and different_tags(tag, found.tag):
            if fail_on_data_loss:
                raise UnknownJournal(_replaced_message(key, stream, tag, found, known))
            renamed[key, stream] = None
            continue
        if found is None and tag is not None:
            found = next((origin for origin in here if origin.tag == tag), None)
        if found is None and known.tags is None:
            found = next((origin for origin in here if _is_located_at(origin, key)), None)
        if found is None and fail_on_data_loss:
            raise UnknownJournal(_missing_message(key, stream, here, known))
        renamed[key, stream] = (key, stream) if found is None else (journal_key(found), stream)

    def by_new_keys(numbers: Mapping[EpochKey, int]) -> dict[EpochKey, int]:
        moved = ((renamed[key[:2]], key[2], next) for key, next in numbers.items())
        return {(*to, epoch): next for to, epoch, next in moved if to is not None}

    return known._replace(ends=by_new_keys(known.ends), begins=by_new_keys(known.begins))


def _flatten(journals: Mapping[str, Any]) -> dict[EpochKey, int]:
    return {
        (journal, stream, int(epoch)): int(next)
        for journal, streams in journals.items()
        for stream, epochs in streams.items()
        for epoch, next in epochs.items()
    }


def _is_located_at(origin: JournalLocation, place: str) -> bool:
    """Say whether a journal is the one at a place, however that is written."""
    if place == origin.journal:
        return True
    if origin.path is not None:
        return os.path.realpath(place) == os.path.realpath(origin.path)
    theirs = parse_server_address(place)
    if theirs is None or origin.server is None or theirs[1] != origin.server[1]:
        return False
    hosts = {theirs[0].lower(), origin.server[0].lower()}
    return len(hosts) == 1 or hosts <= _LOOPBACK_HOSTS


def _replaced_message(key: str, stream: str, tag: int | None, found: JournalLocation, known: Checkpoint) -> str:
    return (
        f"{found.journal} holds another journal of {stream} than the one that the checkpoint was reading as {key}: its"
        f" tag is {found.tag or 0:08x}, and was {tag or 0:08x}. For the new one, {_restart_advice(key, stream, known)}"
        " failOnDataLoss=false reads it from its beginning"
    )


def _missing_message(key: str, stream: str, here: Sequence[JournalLocation], known: Checkpoint) -> str:
    there = ", ".join(f"{one.journal} ({journal_key(one)})" for one in here) or "none of that stream"
    return (
        f"the checkpoint was reading journal {key} of {stream}, which is not among the sources any more; there is"
        f" {there}. Name it too, or, if another was made in its place, {_restart_advice(key, stream, known)}"
        " failOnDataLoss=false goes on without it"
    )


def _restart_advice(key: str, stream: str, known: Checkpoint) -> str:
    epochs = {str(epoch): next for (journal, of, epoch), next in known.ends.items() if (journal, of) == (key, stream)}
    return (
        "begin with a new checkpointLocation, and with startingOffsets if the numbers in it mean the same:"
        f" {json.dumps({stream: epochs})}."
    )
