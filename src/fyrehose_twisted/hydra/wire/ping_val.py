"""Val of a PING: a token that also tells the lease that its sender takes (rule S5 of the reading of document 002).

The document leaves the val to the leader. A val without a claim stands for the lease of the document's timers, so
nodes of an earlier version, which claim nothing and promise longest, are safe beside others.
"""

from __future__ import annotations

import re

from fyrehose_twisted.hydra.wire.messages import NO_QUORUM_PREFIX

_CLAIM = re.compile(r"l([0-9a-f]{1,6})/[0-9a-f]{4}\.[0-9]{1,2}$")


def format_val(leader: int, number: int, suffix: str, *, lease: float | None = None, has_quorum: bool = True) -> str:
    """Return the val of a PING.

    :param number: number of the PING, unique for this leader.
    :param suffix: tells the network and its size.
    :param lease: lease in seconds that its answers give the leader; ``None`` for that of the document's timers.
    """
    claim = "" if lease is None else f"l{round(lease * 1000):x}"
    return f"{'' if has_quorum else NO_QUORUM_PREFIX}{leader:x}.{number}{claim}{suffix}"


def claimed_lease(val: str) -> float | None:
    """Return the lease in seconds that a val claims, ``None`` for that of the document's timers."""
    found = _CLAIM.search(val)
    return None if found is None else int(found[1], 16) / 1000
