from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.parcels.node.raft.log import ENTRY_OVERHEAD, EVENT_OVERHEAD, Log, entry_size
from fyrehose_twisted.parcels.wire.messages import Entry, EntryKind, Member, Run, View

ALONE = View(((Member("Ivan", 1), ("10.0.0.1", 7_878)),))


def entry(term: int, *events: bytes) -> Entry:
    return Entry(term, EntryKind.EVENTS, (Run("p", 0, 1, events),))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 900), min_size=1, max_size=5)),
        st.tuples(st.just("cut"), st.integers(0, 6)),
        st.tuples(st.just("drop"), st.tuples(st.integers(0, 5_000), st.integers(0, 20))),
        st.tuples(st.just("reset"), st.integers(0, 50)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(0, 60), st.integers(0, 3_000), st.integers(1, 6))
def test_it_is_a_list_of_which_the_beginning_is_dropped(
    steps: list[tuple[str, object]], asked: int, limit: int, most: int
) -> None:
    log, model, base, base_term, term = Log(), [], 0, 0, 0
    for what, argument in steps:
        last = base + len(model)
        if what == "append":
            term += 1
            entries = [entry(term, bytes(size)) for size in argument]  # type: ignore[attr-defined]
            log.append(entries)
            model.extend(entries)
        elif what == "cut":
            index = base + 1 + argument  # type: ignore[operator]
            log.cut(index)
            del model[index - base - 1 :]
        elif what == "reset":
            base, base_term, model = last + argument, term, []  # type: ignore[operator]
            log.reset(base, base_term)
        else:
            keep, up_to = argument  # type: ignore[misc]
            up_to = min(base + up_to, last)
            log.drop(keep, up_to)
            while sum(map(entry_size, model)) > keep and base < up_to:
                base, base_term = base + 1, model.pop(0).term
        last = base + len(model)
        assert (log.base, log.base_term, log.last) == (base, base_term, last)
        assert log.last_term == (model[-1].term if model else base_term)
        assert log.size == sum(map(entry_size, model))
        for index in range(max(base - 2, 0), last + 3):
            expected = base_term if index == base else model[index - base - 1].term if base < index <= last else None
            assert log.term(index) == expected
        assert log.rest(base + 1) == model
        start = min(base + asked, last)
        given_entries, size = log.after(start, limit, most)
        rest = model[start - base :]
        assert given_entries == rest[: len(given_entries)]
        assert size == sum(map(entry_size, given_entries))
        assert len(given_entries) <= most
        assert bool(given_entries) == bool(rest)
        assert size <= limit or len(given_entries) == 1
        if len(given_entries) < min(len(rest), most):
            assert size + entry_size(rest[len(given_entries)]) > limit


def test_many_are_dropped_without_moving_the_rest_each_time() -> None:
    log = Log()
    for number in range(1, 5_001):
        log.append([entry(number, b"x")])
        log.drop(10 * entry_size(entry(1, b"x")), log.last)
        assert log.entry(log.last).term == number
        assert log.term(log.base + 1) == log.base + 1
    assert log.last - log.base == 10
    assert len(log._entries) < 2_100
    assert len(log._sizes) == len(log._entries)


def test_a_cut() -> None:
    log = Log(3, 1)
    entries = [entry(2, bytes(number)) for number in range(6)]
    log.append(entries)
    log.drop(sum(map(entry_size, entries[2:])), 9)
    log.cut(8)
    assert (log.base, log.last, log.last_term) == (5, 7, 2)
    assert log.rest(6) == entries[2:4]
    assert log.size == sum(map(entry_size, entries[2:4]))
    log.cut(6)
    assert (log.last, log.size, log.rest(6)) == (5, 0, [])


def test_nothing_is_dropped_that_is_not_applied() -> None:
    log = Log()
    log.append([entry(1, bytes(1_000)) for _ in range(5)])
    log.drop(0, 2)
    assert (log.base, log.last) == (2, 5)


def test_sizes() -> None:
    assert entry_size(Entry(1, EntryKind.NOTHING, None)) == ENTRY_OVERHEAD
    assert entry_size(Entry(1, EntryKind.VIEW, ALONE)) == ENTRY_OVERHEAD
    assert entry_size(entry(1, b"abc", b"")) == ENTRY_OVERHEAD + 3 + 2 * EVENT_OVERHEAD


def test_the_last_view() -> None:
    log = Log(10, 3)
    view = Entry(4, EntryKind.VIEW, ALONE)
    log.append([view, entry(4, b""), view, entry(4, b"")])
    assert log.last_view(0) == (13, ALONE)
    assert log.last_view(12) == (13, ALONE)
    assert log.last_view(13) is None
    log.cut(13)
    assert log.last_view(0) == (11, ALONE)
