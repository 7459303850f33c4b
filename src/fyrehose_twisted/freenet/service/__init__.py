"""The freenet node as a service for ``twistd``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.freenet.service.config import FreenetConfig as FreenetConfig
    from fyrehose_twisted.freenet.service.service import FreenetService as FreenetService
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "FreenetConfig": "config",
            "FreenetService": "service",
        },
    )
