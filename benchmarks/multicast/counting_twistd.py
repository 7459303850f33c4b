"""twistd that counts its calls to send datagrams: OUT, on or off for segmentation offload, and arguments of twistd.

The number of calls is written to OUT when it ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fyrehose_twisted.effects import Address, Burst
from fyrehose_twisted.net import udp
from fyrehose_twisted.net.gso import SegmentingSocket

calls = 0


class CountingSocket(SegmentingSocket):
    """Socket that counts."""

    def send(self, burst: Burst, peer: Address) -> Burst | None:
        """See :meth:`fyrehose_twisted.net.gso.SegmentingSocket.send`."""
        global calls
        calls += 1
        return super().send(burst, peer)


class PlainSocket(CountingSocket):
    """The same without segmentation offload."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.segments = 1


def main() -> None:
    """Run twistd."""
    out, offload = Path(sys.argv.pop(1)), sys.argv.pop(1)
    udp.SegmentingSocket = CountingSocket if offload == "on" else PlainSocket  # type: ignore[misc]
    from twisted.internet import reactor as installed

    reactor: Any = installed
    # twistd ends by the signal that it was sent, so that functions of atexit are not called.
    reactor.addSystemEventTrigger("after", "shutdown", lambda: out.write_text(str(calls)))
    from twisted.scripts import twistd

    command: Any = twistd
    command.run()


if __name__ == "__main__":
    main()
