"""Ship the lines of a growing log file over a backbone, or collect the lines of all shippers into one file.

Both continue after a restart: `ship` stores the position of the last acknowledged line in FILE.shipped, `collect` reads
the last number from the file that it writes. Lines are delivered at least once: some come twice after a crash. A line
is truncated to 65,478 bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import deferLater, react

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose import (
    DEFAULT_BACKBONE,
    MAX_ENVELOPED,
    ClientConfig,
    Message,
    PublisherProtocol,
    Start,
    SubscriberProtocol,
    join,
)

LINES = 500
"""Lines in flight at once."""


class Collector(SubscriberProtocol):
    """Appends `NUMBER<TAB>LINE` to a file."""

    def __init__(self, path: Path) -> None:
        self.output: BinaryIO = path.open("a+b")
        self.output.seek(max(0, self.output.seek(0, 2) - 2**18))
        *lines, torn = self.output.read().split(b"\n")
        if torn:  # A crash left a partial line; its message is requested again.
            self.output.truncate(self.output.tell() - len(torn))
        start = int(lines[-1].split(b"\t")[0]) + 1 if lines else Start.OLDEST
        super().__init__(ClientConfig(start=start))

    def messages_received(self, messages: Sequence[Message]) -> None:
        self.output.writelines(b"%d\t%b\n" % (message.sequence, message.data) for message in messages)
        self.output.flush()

    def messages_lost(self, first: int, last: int) -> None:
        print(f"lost {first} to {last}", flush=True)


async def ship(reactor: Any, publisher: PublisherProtocol, path: Path, follow: bool) -> None:
    """Publish the lines of ``path``; if ``follow``, wait for more of them."""
    mark = path.with_name(path.name + ".shipped")
    position = int(mark.read_text() or 0) if mark.exists() else 0
    with path.open("rb") as file:
        while True:
            file.seek(position)
            lines = [line for _, line in zip(range(LINES), file, strict=False) if line.endswith(b"\n")]
            await publisher.publish_many([line.rstrip(b"\n")[:MAX_ENVELOPED] for line in lines])
            position += sum(map(len, lines))
            mark.write_text(str(position))
            if not lines:
                if not follow:
                    return
                await deferLater(reactor, 0.25)


async def main(reactor: Any, options: argparse.Namespace) -> None:
    try:
        if options.role == "collect":
            collector = await join(reactor, Collector(options.file), options.backbone)
            await collector.stopped
        else:
            publisher = await join(reactor, PublisherProtocol(), options.backbone)
            await ship(reactor, publisher, options.file, options.follow)
            await publisher.leave()
    except (FyrehoseError, OSError, ValueError) as error:
        raise SystemExit(f"log_shipper: {error}") from None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("ship", "collect"))
    parser.add_argument("file", type=Path, help="the log to read, or the file to append to")
    parser.add_argument("--backbone", default=DEFAULT_BACKBONE, metavar="HOST:PORT", help="[%(default)s]")
    parser.add_argument("--follow", action="store_true", help="ship: wait for more lines")
    arguments = parser.parse_args()
    react(lambda reactor: ensureDeferred(main(reactor, arguments)))
