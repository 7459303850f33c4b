"""What clients say of a stream that a backbone without memory was about to number from the start."""

from __future__ import annotations

from collections.abc import Iterable

from fyrehose_twisted.effects import Address


class Claims:
    """Who was asked what it knows of the stream, and who holds a message of it.

    A client alone may make a number up, so it takes two: of two hosts, if more than one was asked. Where only one
    client was asked, there is none to confirm what it says, and it is believed.
    """

    def __init__(self) -> None:
        self._asked: set[Address] = set()
        self._held: dict[Address, int] = {}

    def ask(self, address: Address) -> None:
        """``address`` is asked."""
        self._asked.add(address)

    def was_asked(self, address: Address) -> bool:
        """Say whether ``address`` was."""
        return address in self._asked

    def add(self, address: Address, sequence: int) -> None:
        """A client that was asked holds ``sequence``."""
        self._held.setdefault(address, sequence)

    @property
    def first(self) -> tuple[Address, int] | None:
        """Who was the first to hold something, and what; ``None`` if nobody does."""
        return next(iter(self._held.items()), None)

    @property
    def silent(self) -> int:
        """How many were asked and hold nothing."""
        return len(self._asked) - len(self._held)

    @property
    def confirmed(self) -> bool:
        """Whether two say that they hold something."""
        return len(self._held) > 1 and (len(_hosts(self._held)) > 1 or len(_hosts(self._asked)) == 1)


def _hosts(addresses: Iterable[Address]) -> set[str]:
    return {host for host, _ in addresses}
