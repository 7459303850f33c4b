"""A replicated counter on a parcels cluster: all replicas have the same count.

This is state machine replication: each replica applies the cluster's events, in their one order, to its state. The
snapshot holds the number of the last event beside the count, so a killed replica continues exactly where it was. Each
change has an idempotency key; a change that is sent again after a timeout counts once.

    python examples/counter.py replica --snapshot a.json      # prints the count whenever it changes
    python examples/counter.py add 5                          # adds on every replica
    python examples/counter.py set 100 --if-at 17             # only if it has not changed since event 17
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.parcels import OrderedEvent, ParcelsClient

MAX_CHANGE = 200
"""Bytes of a change. Up to this limit, JSON nesting and numbers are valid for every replica."""


class Counter:
    """State of a replica. It depends on the events only, so it is the same on all replicas."""

    def __init__(self, count: int = 0, sequence: int = 0, changed_at: int = 0) -> None:
        self.count = count
        self.sequence = sequence
        self.changed_at = changed_at

    def apply(self, event: OrderedEvent) -> bool:
        """Apply the next event; return whether the count has changed."""
        before, self.sequence = self.count, event.sequence
        match _read(event.data):
            case {"add": int(amount)}:
                self.count += amount
            case {"set": int(value), "if_at": int(at)} if at == self.changed_at:
                self.count = value
        if self.count != before:
            self.changed_at = event.sequence
        return self.count != before


class Replica:
    """Follows the cluster and stores the state in a file."""

    def __init__(self, snapshot: Path) -> None:
        self.snapshot = snapshot
        try:
            state = json.loads(snapshot.read_bytes()) if snapshot.exists() else {}
            self.counter = Counter(**state)
            if not all(type(number) is int for number in vars(self.counter).values()):
                raise TypeError("it has values other than integers")
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise FyrehoseError(f"{snapshot} is no snapshot of a counter: {error}") from None

    def events_ordered(self, events: Sequence[OrderedEvent]) -> None:
        for event in events:
            if self.counter.apply(event):
                print(f"event {event.sequence}: {self.counter.count}", flush=True)
        self.save()

    def events_skipped(self, first: int, last: int) -> None:
        # No node holds these events any more, so this replica's count would be wrong.
        raise FyrehoseError(f"events {first} to {last} are gone: copy the snapshot of another replica and restart")

    def save(self) -> None:
        """Replace the snapshot atomically."""
        written = self.snapshot.with_name(self.snapshot.name + ".new")
        with written.open("w") as file:
            json.dump(vars(self.counter), file)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self.snapshot)


def _read(data: bytes) -> Any:
    try:
        return json.loads(data) if len(data) <= MAX_CHANGE else None
    except ValueError:
        return None  # An event of another application; every replica skips it.


async def main(reactor: Any, options: argparse.Namespace) -> None:
    client = ParcelsClient(options.node, publisher="counter", reactor=reactor)
    try:
        if options.role == "replica":
            replica = Replica(options.snapshot)
            print(f"event {replica.counter.sequence}: {replica.counter.count}", flush=True)
            await client.follow(replica, replica.counter.sequence + 1).stopped
        else:
            change: dict[str, int] = {options.role: options.amount}
            if options.role == "set":
                change["if_at"] = options.if_at
            data = json.dumps(change).encode()
            if len(data) > MAX_CHANGE:
                raise FyrehoseError(f"that is a change of {len(data)} bytes; no replica takes more than {MAX_CHANGE}")
            print(await client.publish(data, key=options.key))
    except (FyrehoseError, OSError) as error:
        raise SystemExit(f"counter: {error}") from None
    finally:
        await client.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A counter that is the same on all replicas.")
    roles = parser.add_subparsers(dest="role", required=True)
    replica = roles.add_parser("replica", help="keep a replica of the counter, and print each change")
    replica.add_argument("--snapshot", type=Path, default=Path("counter.json"), help="file of the state [%(default)s]")
    add = roles.add_parser("add", help="add to it, and print the number of the event")
    add.add_argument("amount", type=int)
    change = roles.add_parser("set", help="set it, if it has not been changed since an event")
    change.add_argument("amount", type=int)
    change.add_argument("--if-at", type=int, required=True, metavar="N", help="the event that changed it last")
    for role in (add, change):
        role.add_argument("--key", help="idempotency key: changes with the same key count once [random]")
    for role in (replica, add, change):
        role.add_argument(
            "--node", action="append", metavar="URL", help="URL of a node; may be repeated [http://127.0.0.1:8878]"
        )
    options = parser.parse_args()
    options.node = options.node or ["http://127.0.0.1:8878"]
    return options


if __name__ == "__main__":
    arguments = _options()
    react(lambda reactor: ensureDeferred(main(reactor, arguments)))
