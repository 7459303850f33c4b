"""Checkpoint offsets of journals.

An offset is ``{"journals": {KEY: {STREAM: {EPOCH: NEXT}}}, "tags": {KEY: {STREAM: TAG}}}``, where NEXT is the first
unread number. KEY is the result of :func:`journal_key`, which does not depend on the spelling of a journal's location.
An older epoch may still grow after a newer one has begun, so the offset keeps every epoch. In the first batch that
reads an epoch, ``"begins"`` gives the first number in the same form, because the journal may have dropped that number
before the batch is read again.

Earlier releases wrote no tags and used the location as KEY.
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
    """A checkpoint refers to a journal that is not among the query's sources."""


class Checkpoint(NamedTuple):
    """Parsed offset."""

    ends: dict[EpochKey, int]
    begins: dict[EpochKey, int]
    tags: dict[tuple[str, str], int] | None
    """By key and stream; ``None`` if an earlier release wrote the offset."""


def journal_key(origin: JournalLocation) -> str:
    """Return the key that identifies a journal among those of its stream.

    The key is the user's name for the journal, else its tag, else its location if the tag is unknown.
    """
    if origin.name:
        return origin.name
    return origin.journal if origin.tag is None else f"{origin.tag:08x}"


def check_distinct(origins: Iterable[JournalLocation]) -> None:
    """Check that all journals have distinct keys.

    :raises ConfigurationError: if two journals have the same key, because one is a copy of the other.
    """
    known: dict[tuple[str, str], JournalLocation] = {}
    for origin in origins:
        other = known.setdefault((journal_key(origin), origin.stream), origin)
        if other is not origin:
            raise ConfigurationError(
                f"{other.journal} and {origin.journal} are copies of one journal of {origin.stream}; a query cannot"
                " follow both: read one of them"
            )


def make_offset(
    ends: Mapping[EpochKey, int], origins: Iterable[JournalLocation], known: Checkpoint | None = None
) -> Offset:
    """Build the offset for the given read positions.

    :param known: an earlier offset; tags of its journals that are not among ``origins`` are kept.
    """
    tags = dict((known.tags if known is not None else None) or {})
    tags |= {(journal_key(origin), origin.stream): origin.tag for origin in origins if origin.tag is not None}
    named: dict[str, dict[str, str]] = {}
    for key, stream in sorted({key[:2] for key in ends}):
        if (key, stream) in tags:
            named.setdefault(key, {})[stream] = f"{tags[key, stream]:08x}"
    return {"journals": group_by_journal(ends), "tags": named}


def group_by_journal(ends: Mapping[EpochKey, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Nest numbers by journal, stream and epoch, as in an offset."""
    journals: dict[str, dict[str, dict[str, int]]] = {}
    for (journal, stream, epoch), next in sorted(ends.items()):
        journals.setdefault(journal, {}).setdefault(stream, {})[str(epoch)] = next
    return journals


def parse_offset(offset: Offset) -> Checkpoint:
    """Parse an offset. :raises JournalError: if this source did not write it."""
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
        raise JournalError(
            f"the checkpoint has the offset {offset!r}, which this source did not write: use another checkpointLocation"
        ) from None


def resolve_offset(offset: Offset, origins: Sequence[JournalLocation], *, fail_on_data_loss: bool) -> Checkpoint:
    """Parse an offset and map it to the journals' current keys, which change when a journal is named or moved.

    :param fail_on_data_loss: fail if a journal is missing or was replaced by another. Otherwise a missing journal is
        skipped, and a replacement is read from its beginning.
    :raises UnknownJournal: if ``fail_on_data_loss`` and a journal is missing or replaced.
    :raises JournalError: if this source did not write the offset.
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
        if found is None:
            found = _find_renamed(here, key, tag, has_tags=known.tags is not None)
        if found is None and fail_on_data_loss:
            raise UnknownJournal(_missing_message(key, stream, here, known))
        renamed[key, stream] = (key, stream) if found is None else (journal_key(found), stream)

    def by_new_keys(numbers: Mapping[EpochKey, int]) -> dict[EpochKey, int]:
        moved = ((renamed[key[:2]], key[2], next) for key, next in numbers.items())
        return {(*to, epoch): next for to, epoch, next in moved if to is not None}

    return known._replace(ends=by_new_keys(known.ends), begins=by_new_keys(known.begins))


def _find_renamed(
    here: Sequence[JournalLocation], key: str, tag: int | None, *, has_tags: bool
) -> JournalLocation | None:
    """Find a journal whose key has changed, by its tag, or by its location if the offset has no tags."""
    if not has_tags:
        return next((origin for origin in here if _is_located_at(origin, key)), None)
    return None if tag is None else next((origin for origin in here if origin.tag == tag), None)


def _flatten(journals: Mapping[str, Any]) -> dict[EpochKey, int]:
    return {
        (journal, stream, int(epoch)): int(next)
        for journal, streams in journals.items()
        for stream, epochs in streams.items()
        for epoch, next in epochs.items()
    }


def _is_located_at(origin: JournalLocation, place: str) -> bool:
    """Return whether a journal is at a location, whatever the location's spelling."""
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
        f" tag is {found.tag or 0:08x}, and was {tag or 0:08x}. To read it, {_restart_advice(key, stream, known)}"
        " failOnDataLoss=false reads it from its beginning"
    )


def _missing_message(key: str, stream: str, here: Sequence[JournalLocation], known: Checkpoint) -> str:
    there = ", ".join(f"{one.journal} ({journal_key(one)})" for one in here) or "none of that stream"
    return (
        f"the checkpoint was reading journal {key} of {stream}, which is no longer among the sources: {there}."
        f" Add that journal, or, if another has replaced it, {_restart_advice(key, stream, known)}"
        " failOnDataLoss=false continues without it"
    )


def _restart_advice(key: str, stream: str, known: Checkpoint) -> str:
    epochs = {str(epoch): next for (journal, of, epoch), next in known.ends.items() if (journal, of) == (key, stream)}
    return (
        "use a new checkpointLocation, and, if the same numbers still mean the same records, these startingOffsets:"
        f" {json.dumps({stream: epochs})}."
    )
