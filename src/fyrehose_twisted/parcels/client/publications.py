"""Publications of this process, and their pending Deferreds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from hashlib import sha256

from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import (
    ConfigurationError,
    FyrehoseError,
    KeyReused,
    MessageTooLarge,
    NotOrdered,
    PublishQueueFull,
    SequenceChanged,
)
from fyrehose_twisted.parcels.events import SequenceSpans
from fyrehose_twisted.parcels.wire.messages import MAX_PUBLISHER, RefusalReason

DIGEST_CHARS = 32
"""Length of a key's digest in characters."""


class Publication:
    """Events that were published together.

    :ivar numbered: Deferred of their sequence numbers, in order.
    :ivar size: bytes that they count for, where a limit applies.
    """

    __slots__ = ("_on_done", "count", "numbered", "size")

    def __init__(self, count: int, on_done: Callable[[Publication], object]) -> None:
        self.count = count
        self.size = 0
        self.numbered: Deferred[list[int]] = Deferred()
        self._on_done = on_done

    def answered(self, numbers: SequenceSpans) -> None:
        """Fire the Deferred with the sequence numbers."""
        self._on_done(self)
        self.numbered.callback([number for first, count in numbers for number in range(first, first + count)])

    def fail(self, error: Exception) -> None:
        """Fail the Deferred."""
        self._on_done(self)
        self.numbered.errback(error)


class PublicationDeadlines:
    """Pending publications in order of their deadlines."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Publication]] = deque()
        self._done: set[Publication] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, publication: Publication, deadline: float) -> None:
        """Add a publication, whose deadline is not before those added earlier."""
        self._waiting.append((deadline, publication))

    def publication_done(self, publication: Publication) -> None:
        """Record that a publication has its result."""
        self._done.add(publication)

    def take_expired(self, now: float) -> Iterator[Publication]:
        """Remove and yield the publications that have no result at their deadline."""
        waiting, done = self._waiting, self._done
        while waiting and (waiting[0][1] in done or waiting[0][0] <= now):
            _, publication = waiting.popleft()
            if publication not in done:
                yield publication
            done.discard(publication)


def single_number(numbers: list[int]) -> int:
    """Return the sequence number of a single event."""
    return numbers[0]


def check_event(event: bytes, limit: int) -> None:
    """Check one event.

    :raises MessageTooLarge: if it exceeds ``limit`` bytes.
    :raises TypeError: if it is not bytes.
    """
    if not isinstance(event, bytes):
        raise TypeError(f"an event is bytes, not {type(event).__name__}")
    if len(event) > limit:
        raise MessageTooLarge(len(event), limit)


def keyed_publisher(publisher: str, key: str) -> str:
    """Return the publisher name for an event with an idempotency key: the publisher's name and a digest of both.

    Each key is thus a publisher of its own with a single event, which the cluster deduplicates like any other.

    :raises ConfigurationError: if the publisher's name is too long.
    """
    check_publisher(publisher, MAX_PUBLISHER - DIGEST_CHARS - 1)
    digest = sha256(f"{len(publisher)}:{publisher}{key}".encode(errors="surrogatepass")).hexdigest()
    return f"{publisher}:{digest[:DIGEST_CHARS]}"


def check_publisher(publisher: str, limit: int = MAX_PUBLISHER) -> str:
    """Return a publisher name if it is valid.

    :raises ConfigurationError: if it is empty, too long, or not printable.
    """
    size = len(publisher.encode(errors="replace"))
    if not publisher or size > limit or not publisher.isprintable():
        raise ConfigurationError(
            f"publisher {publisher[:80]!r} of {size:,} bytes: use 1 to {limit} bytes of printable text"
        )
    return publisher


def refusal_name(reason: RefusalReason) -> str:
    """Return the short stable name of a reason, such as ``no-quorum``."""
    return reason.name.lower().replace("_", "-")


def publish_error(reason: RefusalReason, text: str, *, unknown: bool, last: int | None = None) -> FyrehoseError:
    """Return the exception for events that have no sequence number."""
    if last is not None:
        return SequenceChanged(text, last)
    if reason is RefusalReason.OTHER_BODY:
        return KeyReused(text)
    if reason is RefusalReason.TOO_MANY and not unknown:
        return PublishQueueFull(text)
    return NotOrdered(refusal_name(reason), text, unknown=unknown)
