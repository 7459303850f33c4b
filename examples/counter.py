"""Replicated counter on a parcels cluster, as an example of state machine replication.

Each replica applies the events of the cluster, in their total order, to its state. So all replicas have the same count.
The snapshot contains the count and the number of the last event, so a killed replica resumes exactly where it stopped.
Each change has an idempotency key, so a change resent after a lost response counts once.

    python examples/counter.py replica --snapshot a.json      # prints the count whenever it changes
    python examples/counter.py add 5                          # changes the count on every replica
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
"""Maximum size of a change in bytes. It keeps nesting and numbers within what every JSON parser accepts."""


class Counter:
    """State of the counter. It depends only on the events, so it is the same on every replica."""

    def __init__(self, count: int = 0, sequence: int = 0, changed_at: int = 0) -> None:
        self.count = count
        self.sequence = sequence
        self.changed_at = changed_at

    def apply(self, event: OrderedEvent) -> bool:
        """Apply the next event; return whether the count changed."""
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
    """Follower of the cluster that stores the state in a file."""

    def __init__(self, snapshot: Path) -> None:
        self.snapshot = snapshot
        try:
            state = json.loads(snapshot.read_bytes()) if snapshot.exists() else {}
            self.counter = Counter(**state)
            if not all(type(number) is int for number in vars(self.counter).values()):
                raise TypeError("it contains values other than integers")
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise FyrehoseError(f"{snapshot} is not a snapshot of a counter: {error}") from None

    def events_ordered(self, events: Sequence[OrderedEvent]) -> None:
        for event in events:
            if self.counter.apply(event):
                print(f"event {event.sequence}: {self.counter.count}", flush=True)
        self.save()

    def events_skipped(self, first: int, last: int) -> None:
        # Without these events, the count would be wrong from here on.
        raise FyrehoseError(f"no node holds events {first} to {last}: restart with another replica's snapshot")

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
        return None  # An event of another application, which every replica ignores.


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
                raise FyrehoseError(f"the change has {len(data)} bytes; the limit is {MAX_CHANGE}")
            print(await client.publish(data, key=options.key))
    except (FyrehoseError, OSError) as error:
        raise SystemExit(f"counter: {error}") from None
    finally:
        await client.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Replicated counter.")
    roles = parser.add_subparsers(dest="role", required=True)
    replica = roles.add_parser("replica", help="keep a replica and print the count whenever it changes")
    replica.add_argument("--snapshot", type=Path, default=Path("counter.json"), help="snapshot file [%(default)s]")
    add = roles.add_parser("add", help="add to the counter and print the number of the event")
    add.add_argument("amount", type=int)
    change = roles.add_parser("set", help="set the counter if it has not changed since an event")
    change.add_argument("amount", type=int)
    change.add_argument("--if-at", type=int, required=True, metavar="N", help="number of its last change")
    for role in (add, change):
        role.add_argument("--key", help="idempotency key for safe retries [a unique one]")
    for role in (replica, add, change):
        role.add_argument(
            "--node", action="append", metavar="URL", help="URL of a node (repeatable) [http://127.0.0.1:8878]"
        )
    options = parser.parse_args()
    options.node = options.node or ["http://127.0.0.1:8878"]
    return options


if __name__ == "__main__":
    arguments = _options()
    react(lambda reactor: ensureDeferred(main(reactor, arguments)))
