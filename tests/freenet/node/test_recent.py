from __future__ import annotations

from fyrehose_twisted.freenet.node.recent import RecentIds


def test_a_uid_is_new_once() -> None:
    recent = RecentIds()
    assert [recent.add(7), recent.add(7), recent.add(8)] == [True, False, True]


def test_the_oldest_is_forgotten_first() -> None:
    recent = RecentIds(3)
    for uid in range(4):
        recent.add(uid)
    assert [recent.add(uid) for uid in (1, 2, 3)] == [False] * 3
    assert recent.add(0)


def test_ten_thousand_are_remembered() -> None:
    recent = RecentIds()
    for uid in range(10_000):
        recent.add(uid)
    assert not recent.add(0)
    recent.add(10_000)
    assert recent.add(0)
