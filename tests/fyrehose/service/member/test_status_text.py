"""Status of a member for systemctl."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from fyrehose_twisted.fyrehose.node.member.status import MemberStatus
from fyrehose_twisted.fyrehose.service.member.status_text import UPDATE_INTERVAL, StatusNotifier, format_status_text


def status(leader: str | None, *, witness: bool = False) -> MemberStatus:
    return MemberStatus("a", "ticks", "standby", 1_007, leader, leader == "a", 0.0, 0, 0, 0, 2, witness, (), {})


@pytest.mark.parametrize(
    ("status", "clients", "text"),
    [
        (status("a"), 12, "leads term 1,007, 12 clients"),
        (status("a"), 1, "leads term 1,007, 1 client"),
        (status("b"), 12, "stands by for b"),
        (status(None), 12, "stands by; no member leads"),
        (status("b", witness=True), 0, "votes for b"),
    ],
)
def test_status_text_says_which_part_the_member_has(status: MemberStatus, clients: int, text: str) -> None:
    assert format_status_text(status, clients) == text


def test_service_manager_is_notified_of_changes_only() -> None:
    told: list[Any] = []
    now: list[str | None] = [None]
    clock = Clock()
    notifier = StatusNotifier(lambda: now[0], clock, lambda **said: told.append(said))
    now[0] = "too early"
    notifier.update()
    now[0] = None
    notifier.start()
    assert told == []
    now[0] = "stands by for b"
    notifier.update()
    notifier.update()
    assert told == [{"STATUS": "stands by for b"}]
    clock.advance(UPDATE_INTERVAL)
    assert len(told) == 1
    now[0] = "leads term 2, 1 client"
    clock.advance(UPDATE_INTERVAL)
    assert told[1:] == [{"STATUS": "leads term 2, 1 client"}]
    notifier.stop()
    now[0] = "stands by for c"
    notifier.update()
    clock.advance(UPDATE_INTERVAL)
    assert len(told) == 2
