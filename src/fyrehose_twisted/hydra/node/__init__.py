"""Rules of hydra, without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.hydra.node.node import HydraNode as HydraNode
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "HydraNode": "node",
        },
    )
