"""Log lines of dropped packets."""

from __future__ import annotations

from twisted.logger import Logger

from fyrehose_twisted.fyrehose.events import PacketDropped
from fyrehose_twisted.host_addresses import address_fields


def _log_drop(log: Logger, drop: PacketDropped) -> None:
    log.warn(
        "dropped ({reason}) from {place}: {detail}",
        reason=drop.reason,
        **address_fields(drop.peer),
        detail=drop.detail,
    )
