"""Time stamps of a process on an epoll loop: wake-ups and sends, in nanoseconds of the monotonic clock."""

from __future__ import annotations

import socket
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

SENDS = ("send", "sendto", "sendmsg")


class Stamps:
    """Time stamps.

    :ivar wakes: returns of the poll function with events.
    :ivar sends: calls that send.
    :ivar begins: calls of the library, by message number.
    :ivar ends: calls by the library, by message number.
    """

    NAMES = ("wakes", "sends", "begins", "ends")

    def __init__(self) -> None:
        self.wakes, self.sends, self.begins, self.ends = (array("q") for _ in self.NAMES)

    def save(self, path: Path) -> None:
        """Write the stamps to files that begin with ``path``."""
        for name in self.NAMES:
            Path(f"{path}.{name}").write_bytes(getattr(self, name).tobytes())

    @classmethod
    def load(cls, path: Path) -> Stamps:
        """Read what :meth:`save` wrote."""
        stamps = cls()
        for name in cls.NAMES:
            getattr(stamps, name).frombytes(Path(f"{path}.{name}").read_bytes())
        return stamps


class StampedPoller:
    """An epoll object that stamps its wake-ups."""

    def __init__(self, poller: Any, stamps: Stamps) -> None:
        self._poll = poller.poll
        self._stamp = stamps.wakes.append
        for name in ("register", "modify", "unregister", "close", "fileno"):
            setattr(self, name, getattr(poller, name))

    def poll(self, *arguments: Any) -> Any:
        """Wait for events."""
        events = self._poll(*arguments)
        if events:
            self._stamp(time.perf_counter_ns())
        return events


def stamp_loop(owner: Any, name: str, stamps: Stamps) -> None:
    """Stamp the wake-ups of a loop whose epoll object is the attribute ``name`` of ``owner``."""
    setattr(owner, name, StampedPoller(getattr(owner, name), stamps))


def stamp_sends(stamps: Stamps) -> None:
    """Stamp all sends of sockets of this process."""
    for name in SENDS:
        setattr(socket.socket, name, stamped(getattr(socket.socket, name), stamps))


def stamped(send: Callable[..., int], stamps: Stamps) -> Callable[..., int]:
    """Return ``send`` with a time stamp before each call."""
    stamp, clock = stamps.sends.append, time.perf_counter_ns

    def stamped_send(*arguments: Any) -> int:
        stamp(clock())
        return send(*arguments)

    return stamped_send


def cost(calls: int = 100_000) -> tuple[float, float]:
    """Return the nanoseconds that a time stamp adds to a wake-up and to a send."""

    class Idle:
        def poll(self, *arguments: Any) -> list[int]:
            return [1]

        register = modify = unregister = close = fileno = poll

    idle, stamps = Idle(), Stamps()
    poller, send = StampedPoller(idle, stamps), stamped(idle.poll, stamps)  # type: ignore[arg-type]
    bare = _time(lambda: idle.poll(1, 2), calls)
    return _time(lambda: poller.poll(1, 2), calls) - bare, _time(lambda: send(1, 2), calls) - bare


def _time(call: Callable[[], Any], calls: int) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter_ns()
        for _ in range(calls // 5):
            call()
        best = min(best, (time.perf_counter_ns() - began) / (calls // 5))
    return best
