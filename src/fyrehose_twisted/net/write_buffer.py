"""What a node writes in one turn, on its way to connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.net.connection import Link
from fyrehose_twisted.rate_limited_log import Complaints


class Outgoing:
    """Joins what goes to one connection, and encodes what goes to several once.

    :param counters: where to count.
    :param complaints: where to say what is wrong.
    """

    log = Logger()

    def __init__(self, counters: Counter[str], complaints: Complaints) -> None:
        self._counters = counters
        self._complaints = complaints
        self._unsent: dict[Link, list[bytes]] = {}
        self._encoded: dict[int, tuple[Any, bytes]] = {}
        """By identity: most of what is written to several is the same object."""

    def put(self, link: Link, messages: Sequence[Any]) -> None:
        """Take messages for a connection."""
        waiting = self._unsent.setdefault(link, [])
        for message in messages:
            known = self._encoded.get(id(message))
            if known is None:
                try:
                    known = message, link.codec.encode(message)
                except Exception:
                    self._not_encodable(link, message)
                    return
                self._encoded[id(message)] = known
            waiting.append(known[1])
        self._counters["messages_sent"] += len(messages)

    def write(self, link: Link) -> None:
        """Write what waits for a connection."""
        pieces = self._unsent.pop(link, None)
        if pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._counters["bytes_sent"] += len(data)
            self._counters["writes"] += 1
            link.write(data)

    def write_all(self) -> None:
        """Write everything."""
        self._encoded.clear()
        for link in tuple(self._unsent):
            self.write(link)

    def forget(self, link: Link) -> None:
        """A connection is over."""
        self._unsent.pop(link, None)

    def _not_encodable(self, link: Link, message: Any) -> None:
        # Nothing may be missing between two messages, so this connection is of no more use.
        self._counters["unencodable"] += 1
        if self._complaints.complain("unencodable", link.source, "hung up on {source}: it is a mistake here"):
            self.log.failure("{what} cannot be encoded", what=type(message).__name__)
        self.write(link)
        link.cut_off("not encodable")
