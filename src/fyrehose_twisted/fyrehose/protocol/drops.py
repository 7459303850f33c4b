"""Log lines of dropped packets."""

from __future__ import annotations

from twisted.logger import Logger

from fyrehose_twisted.fyrehose.events import PacketDropped


def _log_drop(log: Logger, drop: PacketDropped) -> None:
    host, port = drop.peer
    log.warn(
        "dropped ({reason}) from {host}:{port}: {detail}", reason=drop.reason, host=host, port=port, detail=drop.detail
    )
