"""Rules of freenet, without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.freenet.node.node import FreenetNode as FreenetNode
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "FreenetNode": "node",
        },
    )
