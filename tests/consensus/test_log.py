from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership

ALONE = Membership(((MemberId("Ivan", 1), ("10.0.0.1", 7_878)),))


def entry(term: int, data: bytes) -> LogEntry:
    return LogEntry(term, EntryKind.DATA, data)


def entry_size(entry: LogEntry) -> int:
    return 400 + (len(entry.content) if entry.kind is EntryKind.DATA else 0)


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
def test_log_behaves_like_a_list_with_a_compacted_prefix(
    steps: list[tuple[str, object]], asked: int, limit: int, most: int
) -> None:
    log, model, base, base_term, term = RaftLog(entry_size), [], 0, 0, 0
    for what, argument in steps:
        last = base + len(model)
        if what == "append":
            term += 1
            entries = [entry(term, bytes(size)) for size in argument]  # type: ignore[attr-defined]
            log.append(entries)
            model.extend(entries)
        elif what == "cut":
            index = base + 1 + argument  # type: ignore[operator]
            log.truncate_from(index)
            del model[index - base - 1 :]
        elif what == "reset":
            base, base_term, model = last + argument, term, []  # type: ignore[operator]
            log.reset(base, base_term)
        else:
            keep, up_to = argument  # type: ignore[misc]
            up_to = min(base + up_to, last)
            log.compact(keep, up_to)
            while sum(map(entry_size, model)) > keep and base < up_to:
                base, base_term = base + 1, model.pop(0).term
        last = base + len(model)
        assert (log.snapshot_index, log.snapshot_term, log.last_index) == (base, base_term, last)
        assert log.last_term == (model[-1].term if model else base_term)
        assert log.size == sum(map(entry_size, model))
        for index in range(max(base - 2, 0), last + 3):
            expected = base_term if index == base else model[index - base - 1].term if base < index <= last else None
            assert log.term_at(index) == expected
        assert log.entries_from(base + 1) == model
        start = min(base + asked, last)
        given_entries, size = log.entries_after(start, limit, most)
        rest = model[start - base :]
        assert given_entries == rest[: len(given_entries)]
        assert size == sum(map(entry_size, given_entries))
        assert len(given_entries) <= most
        assert bool(given_entries) == bool(rest)
        assert size <= limit or len(given_entries) == 1
        if len(given_entries) < min(len(rest), most):
            assert size + entry_size(rest[len(given_entries)]) > limit


def test_compaction_deletes_entries_in_bulk() -> None:
    log = RaftLog(entry_size)
    for number in range(1, 5_001):
        log.append([entry(number, b"x")])
        log.compact(10 * entry_size(entry(1, b"x")), log.last_index)
        assert log.entry_at(log.last_index).term == number
        assert log.term_at(log.snapshot_index + 1) == log.snapshot_index + 1
    assert log.last_index - log.snapshot_index == 10
    assert len(log._entries) < 2_100
    assert len(log._sizes) == len(log._entries)


def test_truncation_after_compaction_keeps_the_sizes() -> None:
    log = RaftLog(entry_size, 3, 1)
    entries = [entry(2, bytes(number)) for number in range(6)]
    log.append(entries)
    log.compact(sum(map(entry_size, entries[2:])), 9)
    log.truncate_from(8)
    assert (log.snapshot_index, log.last_index, log.last_term) == (5, 7, 2)
    assert log.entries_from(6) == entries[2:4]
    assert log.size == sum(map(entry_size, entries[2:4]))
    log.truncate_from(6)
    assert (log.last_index, log.size, log.entries_from(6)) == (5, 0, [])


def test_compaction_keeps_entries_that_are_not_applied() -> None:
    log = RaftLog(entry_size)
    log.append([entry(1, bytes(1_000)) for _ in range(5)])
    log.compact(0, 2)
    assert (log.snapshot_index, log.last_index) == (2, 5)


def test_last_membership_finds_the_latest_change() -> None:
    log = RaftLog(entry_size, 10, 3)
    view = LogEntry(4, EntryKind.MEMBERSHIP, ALONE)
    log.append([view, entry(4, b""), view, entry(4, b"")])
    assert log.last_membership(0) == (13, ALONE)
    assert log.last_membership(12) == (13, ALONE)
    assert log.last_membership(13) is None
    log.truncate_from(13)
    assert log.last_membership(0) == (11, ALONE)


def of_terms(*terms: int) -> list[LogEntry]:
    return [entry(term, b"") for term in terms]


def test_entries_that_are_in_the_log_match() -> None:
    log = RaftLog(entry_size)
    log.append(of_terms(1, 1, 2))
    assert log.matching_entries(0, of_terms(1, 1, 2)) == 3
    assert log.matching_entries(1, of_terms(1, 2, 2)) == 2
    assert log.matching_entries(1, of_terms(3, 2)) == 0
    assert log.matching_entries(3, []) == 0


def test_the_last_possible_match_is_of_the_leaders_term_or_committed() -> None:
    log = RaftLog(entry_size)
    log.append(of_terms(1, 1, 2, 2, 3))
    assert log.last_possible_match(9, 3, 0) == 5
    assert log.last_possible_match(5, 2, 0) == 4
    assert log.last_possible_match(5, 1, 0) == 2
    assert log.last_possible_match(5, 1, 3) == 3
    assert log.last_possible_match(5, 9, 0) == 0
    assert log.last_possible_match(2, 9, 3) == 3
