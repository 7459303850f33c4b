"""Rules of parcels, without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.parcels.node.node import ClusterNode as ClusterNode
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "ClusterNode": "node",
        },
    )
