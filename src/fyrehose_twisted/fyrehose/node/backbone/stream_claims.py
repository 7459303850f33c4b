"""Answers of clients that know a stream which a backbone without memory was about to number from the start."""

from __future__ import annotations

from collections.abc import Iterable

from fyrehose_twisted.effects import Address


class StreamClaims:
    """The clients that were asked for messages of the stream, and those that hold one.

    One client may make a number up, so two have to hold messages: on two hosts, if clients of several hosts were asked.
    A client that alone was asked is believed, for no other can confirm its answer.
    """

    def __init__(self) -> None:
        self._queried: set[Address] = set()
        self._claimed: dict[Address, int] = {}

    def record_query(self, address: Address) -> None:
        """``address`` is asked."""
        self._queried.add(address)

    def is_queried(self, address: Address) -> bool:
        """Say whether ``address`` was."""
        return address in self._queried

    def add(self, address: Address, sequence: int) -> None:
        """A client that was asked holds ``sequence``."""
        self._claimed.setdefault(address, sequence)

    @property
    def first(self) -> tuple[Address, int] | None:
        """The first client that holds a message, and its number; ``None`` if no client does."""
        return next(iter(self._claimed.items()), None)

    @property
    def unconfirmed_count(self) -> int:
        """Number of clients that were asked and hold nothing."""
        return len(self._queried) - len(self._claimed)

    @property
    def is_confirmed(self) -> bool:
        """True once two clients hold messages."""
        return len(self._claimed) > 1 and (len(_hosts(self._claimed)) > 1 or len(_hosts(self._queried)) == 1)


def _hosts(addresses: Iterable[Address]) -> set[str]:
    return {host for host, _ in addresses}
