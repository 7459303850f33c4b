from __future__ import annotations

from typing import Any

from sim.tcp.talkers import JoinLines, LengthCodec

from fyrehose_twisted.effects import Address, Close, Peer, Write
from fyrehose_twisted.sim.link import Link

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


def test_hanging_up_delivers_what_was_written_and_then_tells_the_other(
    codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec)
    lines.write("b", "a", "before")
    lines.run_until(1)
    lines.write("a", "b", *numbered(3))
    lines.write("b", "a", "on its way")
    lines.hang_up("a", "b")
    lines.write("b", "a", "too late")
    lines.run_until(2)
    assert lines["b"].story[1:] == [
        *((1.25, "got", text) for text in numbered(3)),
        (1.25, "disconnected", "closed"),
    ]
    assert lines["a"].got == ["before"]
    assert lines["a"].ended == []
    assert lines.drops() == {"closed": 2}
    assert lines.words[-2:] == [(1.0, "a", "closed"), (1.25, "b", "closed")]
    assert lines.forgotten()


def test_hanging_up_on_a_slow_reader_delivers_everything_in_the_end(
    codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec, link=Link(delay=0.1, jitter=0.1, loss=0.2))
    lines.network.streams.throttle_reads(lines.hosts["b"], 4_000.0)
    messages = [f"{number:0>246}" for number in range(1_000)]
    lines.write("a", "b", *messages)
    lines.run_until(1)
    lines.hang_up("a", "b")
    for number in range(50):
        lines.write("b", "a", f"to nobody {number}")
        lines.network.run(1.0)
    assert len(lines["b"].peers) == 1
    lines.run_until(150)
    assert lines["b"].got == messages
    assert [reason for _, reason in lines["b"].ended] == ["closed"]
    assert [what for _, what, _ in lines["a"].story] == ["connected", "blocked"]
    assert lines.drops() == {"closed": 50}
    assert lines.forgotten()


def test_what_was_not_read_when_the_node_hung_up_it_never_gets(codec: LengthCodec | None, joined: JoinLines) -> None:
    lines = joined(codec=codec)
    node = lines["b"]

    def hang_up(what: str, detail: Any, peer: Peer | None) -> None:
        if detail == "message 2" and peer is not None:
            node.forget(peer)
            node.wants.append(Close(peer))

    node.react = hang_up
    lines.write("a", "b", *numbered(600))
    lines.run_until(0.3)
    assert lines.drops()["closed"] > 200
    lines.run_until(5)
    assert node.got == numbered(3)
    assert lines["a"].ended == [(0.5, "closed")]
    assert lines.drops() == {"closed": 597}
    assert lines.forgotten()


def test_who_is_blocked_and_hung_up_on_is_told_the_end_and_no_more(joined: JoinLines) -> None:
    lines = joined()
    lines.pause("b", 5.0)
    lines.write("a", "b", *range(600))
    lines.run_until(1)
    lines.hosts["b"].resume()
    lines.hang_up("b", "a")
    lines.run_until(70)
    assert [what for _, what, _ in lines["a"].story] == ["connected", "blocked", "disconnected"]


def test_if_both_hang_up_nobody_is_told(joined: JoinLines) -> None:
    lines = joined()
    lines.write("a", "b", "last words")
    lines.hang_up("a", "b")
    lines.hang_up("b", "a")
    lines.run_until(5)
    assert lines["a"].ended == lines["b"].ended == []
    assert lines.drops() == {"closed": 1}
    assert lines.forgotten()


def test_hanging_up_twice_is_hanging_up_once(joined: JoinLines) -> None:
    lines = joined()
    peer = lines.peer("a", "b")
    lines.hang_up("a", "b")
    lines.want("a", Close(peer))
    lines.run_until(5)
    lines.want("a", Close(peer))
    lines.run_until(10)
    assert lines["b"].ended == [(0.25, "closed")]
    assert lines.words[2:] == [(0.0, "a", "closed"), (0.25, "b", "closed")]


def test_what_is_written_to_a_connection_that_is_over_is_dropped_in_silence(
    codec: LengthCodec | None, joined: JoinLines
) -> None:
    lines = joined(codec=codec)
    peer = lines.peer("a", "b")
    lines.hang_up("a", "b")
    lines.want("a", Write(["one", "two"], peer))
    lines.run_until(5)
    lines.want("b", Write(["three"], peer))  # a connection of somebody else
    assert lines.drops() == {"gone": 3}
    assert lines.network.counters["sent"] == 3
    assert lines["b"].got == []


def test_time_is_what_the_clock_of_the_host_says(joined: JoinLines) -> None:
    lines = joined()
    lines.hosts["b"].set_clock(offset=1_000.0)
    lines.write("a", "b", "hello")
    lines.run_until(1)
    assert lines["b"].told("got") == [(1_000.25, "got", "hello")]
