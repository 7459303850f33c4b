"""twistd with time stamps: OUT and its arguments. The stamps are written to OUT when it ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.stamps import Stamps, stamp_loop, stamp_sends


def main() -> None:
    """Run twistd."""
    stamps, out = Stamps(), Path(sys.argv.pop(1))
    stamp_sends(stamps)
    from twisted.internet import reactor as installed

    reactor: Any = installed
    stamp_loop(reactor, "_poller", stamps)
    # twistd ends by the signal that it was sent, so that functions of atexit are not called.
    reactor.addSystemEventTrigger("after", "shutdown", stamps.save, out)
    from twisted.scripts import twistd

    command: Any = twistd
    command.run()


if __name__ == "__main__":
    main()
