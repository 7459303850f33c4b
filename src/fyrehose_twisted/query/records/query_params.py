"""Query parameters of record requests: range, filter and format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.framing import KeyFilter, make_key_filter
from fyrehose_twisted.interfaces import IJournalContents
from fyrehose_twisted.query.records.expression import Expression, InvalidExpression
from fyrehose_twisted.query.records.record_json import RecordView
from fyrehose_twisted.web.response import bad_request

MAX_POSITION = 2**64 - 2

RANGE_PARAMS = (
    b"from",
    b"to",
    b"since",
    b"until",
    b"where",
    b"key",
    b"key_prefix",
    b"limit",
    b"last",
    b"encoding",
    b"repeats",
)
"""Parameters of a range request."""
FOLLOW_PARAMS = (b"from", b"since", b"where", b"key", b"key_prefix", b"last", b"encoding", b"repeats", b"id")
"""Parameters of a live stream; ``id`` is for clients that cannot send ``Last-Event-ID``."""

_KEY_PARAMS = (b"key", b"key_prefix")
"""Parameters that may be any bytes."""

_PLACE = re.compile(r"(?:([0-9]{1,20}):)?([0-9]{1,20})")
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")


class EpochPosition(NamedTuple):
    """A position in an epoch."""

    epoch: int
    position: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.position}" if self.epoch else str(self.position)


class RecordQuery(NamedTuple):
    """Parsed query of one request."""

    first: EpochPosition | None = None
    """First position; ``None`` for the start of a range, or the end for a live stream."""
    last: EpochPosition | None = None
    """Last position, inclusive; ``None`` for the end."""
    since: int | None = None
    """Earliest receive time, inclusive, UTC microseconds since 1970."""
    until: int | None = None
    """End of the receive times, exclusive."""
    where: Expression | None = None
    key: KeyFilter | None = None
    limit: int | None = None
    """Maximum number of records."""
    newest: int | None = None
    """Number of newest records to return."""
    plain: bool = False
    """Whether all payloads are encoded as base64."""
    repeats: bool = False
    """Whether to include and mark repeats."""

    @property
    def is_sparse(self) -> bool:
        """Whether the query may skip many records for each match."""
        return self.has_filter or self.since is not None or self.until is not None

    @property
    def has_filter(self) -> bool:
        """Whether records are selected by their contents."""
        return self.where is not None or self.key is not None

    def matches(self, item: RecordView) -> bool:
        """Return whether a record has the wanted key and contents."""
        return (self.key is None or self.key.matches(item.key)) and (self.where is None or self.where.matches(item))

    def next_query(self, place: EpochPosition) -> str:
        """Return the query string that continues at ``place``."""
        words = [f"from={place.epoch}:{place.position}"]
        if self.last is not None:
            words.append(f"to={self.last.epoch}:{self.last.position}")
        words += self._times()
        if self.limit is not None:
            words.append(f"limit={self.limit}")
        return self._joined(words)

    def previous_query(self, place: EpochPosition) -> str:
        """Return the query string for the newest records up to ``place``."""
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
        for name, key in (("key", self.key and self.key.key), ("key_prefix", self.key and self.key.prefix)):
            if key is not None:
                words.append(f"{name}={quote(key, safe='')}")
        if self.plain:
            words.append("encoding=base64")
        if self.repeats:
            words.append("repeats=marked")
        return "&".join(words)


def parse_record_query(
    query: Mapping[bytes, bytes], contents: IJournalContents, *, longest: int, page: int
) -> RecordQuery:
    """Parse the query of a request.

    :param longest: maximum number of characters of a filter.
    :param page: maximum number of records in a response, for ``limit`` and ``last``.
    :raises HttpError: if a parameter is invalid.
    """
    words = {name.decode(): _decoded(name, value) for name, value in query.items() if name not in _KEY_PARAMS}
    first, last = (_optional_position(name, words.get(name), contents) for name in ("from", "to"))
    since, until = (_time(name, words.get(name)) for name in ("since", "until"))
    newest = _count("last", words.get("last"), page)
    encoding = words.get("encoding")
    if encoding not in (None, "base64"):
        raise bad_request("encoding must be base64, or be left out")
    repeats = words.get("repeats")
    if repeats not in (None, "marked"):
        raise bad_request("repeats must be marked, or be left out")
    where = None
    if "where" in words:
        try:
            where = Expression(words["where"], longest)
        except InvalidExpression as error:
            raise bad_request(str(error)) from None
    limit = _count("limit", words.get("limit"), page)
    if newest is not None and limit is not None:
        newest = min(newest, limit)
    try:
        key = make_key_filter(query.get(b"key"), query.get(b"key_prefix"))
    except ConfigurationError as error:
        raise bad_request(f"key or key_prefix: {error}") from None
    return RecordQuery(first, last, since, until, where, key, limit, newest, encoding is not None, repeats is not None)


def parse_position(name: str, text: str, contents: IJournalContents) -> EpochPosition:
    """Parse a position of the form ``SEQUENCE`` or ``EPOCH:SEQUENCE``.

    :param name: name of the parameter.
    :raises HttpError: if it is invalid, or its epoch is ambiguous.
    """
    found = _PLACE.fullmatch(text)
    if found is None or int(found[2]) > MAX_POSITION or int(found[1] or 0) >= 2**64:
        raise bad_request(f"{name} must be SEQUENCE or EPOCH:SEQUENCE, not {text[:40]!r}")
    if found[1] is not None:
        return EpochPosition(int(found[1]), int(found[2]))
    epochs = contents.epochs()
    if epochs and epochs != [0]:
        if len(epochs) > 1:
            raise bad_request(
                f"the epoch of {name}={text} is ambiguous: there are {epochs[0]} to {epochs[-1]}; use EPOCH:{text}"
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
    raise bad_request(f"{name} must be a number from 1 to {limit}, not {text[:40]!r}")


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if _SECONDS.fullmatch(text):
        whole, _, fraction = text.partition(".")
        return int(whole) * 1_000_000 + int(fraction.ljust(6, "0") or 0)
    try:
        # A plus sign in a query decodes to a space, unless written as %2B.
        time = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise bad_request(
            f"{name} must be a time such as 2026-01-31T12:00:00Z, or seconds since 1970, not {text[:40]!r}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)
