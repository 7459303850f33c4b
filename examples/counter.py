"""Replicated counter: state that every node of a parcels cluster keeps the same.

export PYTHONPATH=examples
twistd parcels-node --name east --bootstrap --http tcp:8878 --state-class counter.Counter
seq 5 | fyrehose parcels publish
fyrehose parcels state                                         # 15
echo 100 | fyrehose parcels publish --http http://127.0.0.1:8878 --expect 5    # only if nobody else changed it
"""

import re

from fyrehose_twisted.parcels import Event, ReplicatedState


class Counter(ReplicatedState):
    """Sum of the events that are numbers. Other events of the cluster change nothing."""

    count = 0

    def apply(self, event: Event) -> None:
        if re.fullmatch(rb"-?[0-9]{1,18}", event.data):
            self.count += int(event.data)

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, data: bytes) -> None:
        self.count = int(data)
