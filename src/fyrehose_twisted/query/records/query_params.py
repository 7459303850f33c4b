"""What a request wants of a stream: from where to where, which records, in which form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from fyrehose_twisted.interfaces import IJournalContents
from fyrehose_twisted.query.records.expression import Expression, InvalidExpression
from fyrehose_twisted.web.response import bad_request

MAX_POSITION = 2**64 - 2

RANGE_PARAMS = (b"from", b"to", b"since", b"until", b"where", b"limit", b"last", b"encoding", b"repeats")
"""Parameters of a range."""
FOLLOW_PARAMS = (b"from", b"since", b"where", b"last", b"encoding", b"repeats", b"id")
"""Parameters of a stream that goes on; ``id`` is for those who cannot send ``Last-Event-ID``."""

_PLACE = re.compile(r"(?:([0-9]{1,20}):)?([0-9]{1,20})")
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")


class EpochPosition(NamedTuple):
    """A position in an epoch."""

    epoch: int
    position: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.position}" if self.epoch else str(self.position)


class RecordQuery(NamedTuple):
    """What is wanted."""

    first: EpochPosition | None = None
    """``None``: from the beginning, or of a stream that goes on, from now on."""
    last: EpochPosition | None = None
    """Inclusive; ``None``: up to the end."""
    since: int | None = None
    """UTC microseconds since 1970: what was received then or later."""
    until: int | None = None
    """What was received before."""
    where: Expression | None = None
    limit: int | None = None
    """At most so many."""
    newest: int | None = None
    """The newest so many of those."""
    plain: bool = False
    """Payloads as base64, whatever they are."""
    repeats: bool = False
    """Messages that were published before as well, marked."""

    @property
    def is_sparse(self) -> bool:
        """Whether it may pass over many records for each that is wanted."""
        return self.where is not None or self.since is not None or self.until is not None

    def next_query(self, place: EpochPosition) -> str:
        """Return the query that goes on at ``place``."""
        words = [f"from={place.epoch}:{place.position}"]
        if self.last is not None:
            words.append(f"to={self.last.epoch}:{self.last.position}")
        words += self._times()
        if self.limit is not None:
            words.append(f"limit={self.limit}")
        return self._joined(words)

    def previous_query(self, place: EpochPosition) -> str:
        """Return the query for the newest up to ``place``."""
        words = [f"last={self.newest}", f"to={place.epoch}:{place.position}"]
        if self.first is not None:
            words.append(f"from={self.first.epoch}:{self.first.position}")
        return self._joined([*words, *self._times()])

    def _times(self) -> list[str]:
        times = ("since", self.since), ("until", self.until)
        return [f"{name}={time // 1_000_000}.{time % 1_000_000:06}" for name, time in times if time is not None]

    def _joined(self, words: list[str]) -> str:
        if self.where is not None:
            words.append(f"where={quote(self.where.text, safe='')}")
        if self.plain:
            words.append("encoding=base64")
        if self.repeats:
            words.append("repeats=marked")
        return "&".join(words)


def parse_record_query(
    query: Mapping[bytes, bytes], contents: IJournalContents, *, longest: int, page: int
) -> RecordQuery:
    """Return what a query wants.

    :param longest: characters that a filter may have.
    :param page: records of an answer, which ``limit`` and ``last`` cannot exceed.
    :raises Problem: if it makes no sense.
    """
    words = {name.decode(): _decoded(name, value) for name, value in query.items()}
    first, last = (_optional_position(name, words.get(name), contents) for name in ("from", "to"))
    since, until = (_time(name, words.get(name)) for name in ("since", "until"))
    newest = _count("last", words.get("last"), page)
    encoding = words.get("encoding")
    if encoding not in (None, "base64"):
        raise bad_request("encoding is base64, or left out")
    repeats = words.get("repeats")
    if repeats not in (None, "marked"):
        raise bad_request("repeats is marked, or left out")
    where = None
    if "where" in words:
        try:
            where = Expression(words["where"], longest)
        except InvalidExpression as error:
            raise bad_request(str(error)) from None
    limit = _count("limit", words.get("limit"), page)
    if newest is not None and limit is not None:
        newest = min(newest, limit)
    return RecordQuery(first, last, since, until, where, limit, newest, encoding is not None, repeats is not None)


def parse_position(name: str, text: str, contents: IJournalContents) -> EpochPosition:
    """Return the place that is written as ``SEQUENCE`` or ``EPOCH:SEQUENCE``.

    :param name: of what says so.
    :raises Problem: if it is none, or it is not clear of which epoch it is.
    """
    found = _PLACE.fullmatch(text)
    if found is None or int(found[2]) > MAX_POSITION or int(found[1] or 0) >= 2**64:
        raise bad_request(f"{name} is SEQUENCE or EPOCH:SEQUENCE, and not {text[:40]!r}")
    if found[1] is not None:
        return EpochPosition(int(found[1]), int(found[2]))
    epochs = contents.epochs()
    if epochs and epochs != [0]:
        if len(epochs) > 1:
            raise bad_request(
                f"of which epoch is {name}={text}? There are {epochs[0]} to {epochs[-1]}; say EPOCH:{text}"
            )
        return EpochPosition(epochs[0], int(found[2]))
    return EpochPosition(0, int(found[2]))


def _decoded(name: bytes, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise bad_request(f"{name.decode()} is not UTF-8") from None


def _optional_position(name: str, text: str | None, contents: IJournalContents) -> EpochPosition | None:
    return None if text is None else parse_position(name, text, contents)


def _count(name: str, text: str | None, limit: int) -> int | None:
    if text is None:
        return None
    if re.fullmatch("[0-9]{1,9}", text) and 1 <= int(text) <= limit:
        return int(text)
    raise bad_request(f"{name} is a number from 1 to {limit}, and not {text[:40]!r}")


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if _SECONDS.fullmatch(text):
        whole, _, fraction = text.partition(".")
        return int(whole) * 1_000_000 + int(fraction.ljust(6, "0") or 0)
    try:
        # A plus in a query is a space, unless it is written as %2B.
        time = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise bad_request(
            f"{name} is a time such as 2026-01-31T12:00:00Z, or seconds since 1970, and not {text[:40]!r}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)
