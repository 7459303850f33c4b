"""The hydra node as a service for ``twistd``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.hydra.service.config import HydraConfig as HydraConfig
    from fyrehose_twisted.hydra.service.service import HydraService as HydraService
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "HydraConfig": "config",
            "HydraService": "service",
        },
    )
