"""Callbacks of discovery."""

from __future__ import annotations

from typing import Protocol

from fyrehose_twisted.consensus.messages import MemberId


class MemberListener(Protocol):
    """Receiver of changes in which members can be reached."""

    def member_ready(self, member: MemberId) -> None:
        """Called when requests can be sent to ``member``."""

    def member_suspected(self, member: MemberId, now: float) -> None:
        """Called when ``member`` is presumed dead."""
