"""The parcels node as a service for ``twistd``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.parcels.service.config import ParcelsConfig as ParcelsConfig
    from fyrehose_twisted.parcels.service.service import ParcelsNode as ParcelsNode
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "ParcelsConfig": "config",
            "ParcelsNode": "service",
        },
    )
