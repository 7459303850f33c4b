from __future__ import annotations

import pytest

from fyrehose_twisted.fyrehose.config import WindowConfig
from fyrehose_twisted.fyrehose.node.client.publishing.congestion import CongestionWindow


def rounds(window: CongestionWindow, count: int, *, lost: float = 0.0, round_trip: float = 0.01) -> None:
    """Acknowledge or lose ``count`` windows of messages."""
    for _ in range(count):
        size = int(window.size) + 1
        gone = int(size * lost)
        for _ in range(size - gone):
            window.acknowledged(round_trip)
        window.settled(gone, size)


def test_the_congestion_window_doubles_up_to_its_maximum_without_losses() -> None:
    window = CongestionWindow(WindowConfig(initial=64, maximum=1_000))
    rounds(window, 1)
    assert window.size == 128
    rounds(window, 10)
    assert window.size == 1_000


def test_the_congestion_window_halves_to_its_minimum_after_losses_and_then_grows_slowly() -> None:
    window = CongestionWindow(WindowConfig(initial=64, minimum=16))
    rounds(window, 1, lost=0.3)
    assert window.size == 32
    rounds(window, 10, lost=0.3)
    assert window.size == 16
    rounds(window, 1)
    assert window.size == 18


def test_a_constant_low_loss_does_not_shrink_the_congestion_window() -> None:
    window = CongestionWindow(WindowConfig())
    rounds(window, 30, lost=0.1)
    assert window.size == WindowConfig().maximum


def test_a_growing_round_trip_shrinks_the_congestion_window() -> None:
    window = CongestionWindow(WindowConfig(initial=512))
    rounds(window, 1)
    before = window.size
    rounds(window, 1, round_trip=1.0)
    assert window.size < before


def test_the_retransmission_timeout_follows_rfc_6298() -> None:
    window = CongestionWindow(WindowConfig(minimum_timeout=0.0, maximum_timeout=60.0))
    assert window.timeout == 1.0
    window.acknowledged(0.4)
    assert window.timeout == pytest.approx(0.4 + 4 * 0.2)
    window.acknowledged(0.8)
    assert window.timeout == pytest.approx(0.45 + 4 * (0.15 + 0.1))


def test_the_retransmission_timeout_stays_between_its_minimum_and_maximum() -> None:
    window = CongestionWindow(WindowConfig(minimum_timeout=0.2, maximum_timeout=4.0))
    for _ in range(100):
        window.acknowledged(0.001)
    assert window.timeout == 0.2
    for _ in range(100):
        window.acknowledged(30.0)
    assert window.timeout == 4.0


def test_the_retransmission_timeout_doubles_once_per_round_until_an_unambiguous_ack() -> None:
    window = CongestionWindow(WindowConfig(maximum_timeout=60.0))
    window.acknowledged(0.1)
    once = window.timeout
    window.timed_out(10.0)
    window.timed_out(10.1)
    assert window.timeout == pytest.approx(2 * once)
    window.timed_out(20.0)
    assert window.timeout == pytest.approx(4 * once)
    window.acknowledged(None)
    assert window.timeout == pytest.approx(4 * once)
    window.acknowledged(0.1)
    assert window.timeout <= once


def test_the_reordering_window_grows_with_spurious_retransmissions_and_decays() -> None:
    window = CongestionWindow(WindowConfig(maximum=128))
    window.acknowledged(0.1)
    before = window.reordering_window
    for _ in range(100):
        window.spurious_retransmission()
    assert window.reordering_window == pytest.approx(32 * before)
    rounds(window, 300, round_trip=0.1)
    assert window.reordering_window == pytest.approx(before)


def test_the_congestion_window_shrinks_when_all_messages_are_lost() -> None:
    window = CongestionWindow(WindowConfig(initial=64, minimum=16))
    for _ in range(64 + 32):
        window.settled(1, 1)
    assert window.size == 16


def test_the_congestion_window_grows_slowly_after_a_growing_round_trip() -> None:
    window = CongestionWindow(WindowConfig(initial=512))
    rounds(window, 1)
    rounds(window, 1, round_trip=1.0)
    rounds(window, 60)  # Until the average has decayed.
    window.size = 100.0
    rounds(window, 1)
    assert window.size == pytest.approx(112.5)


def test_the_congestion_window_recovers_after_the_clock_was_set_back() -> None:
    window = CongestionWindow(WindowConfig(maximum=1_000))
    window.acknowledged(-3_600.0)
    rounds(window, 30)
    assert window.timeout < 1.0
    assert window.size == 1_000


def test_losses_that_show_late_and_at_once_count_among_the_messages_sent_with_them() -> None:
    window = CongestionWindow(WindowConfig(initial=64, maximum=64))
    for _ in range(100):
        for _ in range(950):
            window.acknowledged(0.01)
        window.settled(50, 1_000)
    assert window.size == 64


def test_the_timer_is_shorter_while_the_backbone_recognises_retransmissions_and_they_are_needed() -> None:
    window = CongestionWindow(WindowConfig(minimum_timeout=0.2, marked_timeout=0.05))
    rounds(window, 3, round_trip=0.001)
    assert window.timeout == 0.2
    window.retransmissions_recognised()
    assert window.timeout == 0.05
    for _ in range(150):
        window.retransmitted_early()
    assert window.timeout == 0.2
    window.retransmissions_recognised()
    assert window.timeout == 0.2
    rounds(window, 100, round_trip=0.001)
    assert window.timeout == pytest.approx(0.05)
