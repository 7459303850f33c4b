"""Claims of clients to hold messages of a stream of which the backbone has no record."""

from __future__ import annotations

from collections.abc import Iterable

from fyrehose_twisted.effects import Address


class StreamClaims:
    """Clients that were queried for messages of the stream, and their answers.

    A single client may invent a number. A claim is therefore confirmed when two clients hold messages, on two hosts if
    clients on several hosts were queried. The claim of an only client counts without confirmation.
    """

    def __init__(self) -> None:
        self._queried: set[Address] = set()
        self._claimed: dict[Address, int] = {}

    def record_query(self, address: Address) -> None:
        """Record that ``address`` is queried."""
        self._queried.add(address)

    def is_queried(self, address: Address) -> bool:
        """Return whether ``address`` was queried."""
        return address in self._queried

    def add(self, address: Address, sequence: int) -> None:
        """Record that a queried client holds ``sequence``."""
        self._claimed.setdefault(address, sequence)

    @property
    def first(self) -> tuple[Address, int] | None:
        """First client that claims to hold a message, and the number; ``None`` if there is none."""
        return next(iter(self._claimed.items()), None)

    @property
    def unconfirmed_count(self) -> int:
        """Number of queried clients that hold no message."""
        return len(self._queried) - len(self._claimed)

    @property
    def is_confirmed(self) -> bool:
        """True once two clients hold messages."""
        return len(self._claimed) > 1 and (len(_hosts(self._claimed)) > 1 or len(_hosts(self._queried)) == 1)


def _hosts(addresses: Iterable[Address]) -> set[str]:
    return {host for host, _ in addresses}
