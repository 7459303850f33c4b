from __future__ import annotations

from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import NotOrdered
from fyrehose_twisted.parcels.service.read_marks import ReadMark, ReadMarks


def results(*readers: Deferred[int]) -> list[object]:
    """Return the results so far."""
    found: list[object] = [None] * len(readers)
    for place, reader in enumerate(readers):
        if reader.called:
            reader.addErrback(lambda failure: failure.value)
            reader.addCallback(lambda result, place=place: found.__setitem__(place, result))
    return found


def test_readers_share_the_next_mark_and_never_the_one_under_way() -> None:
    put: list[ReadMark] = []
    marks = ReadMarks(put.append)
    first = marks.wait()
    later = [marks.wait() for _ in range(3)]
    assert len(put) == 1
    put[0].answered(((8, 0),))
    assert results(first, *later) == [7, None, None, None]
    assert len(put) == 2
    put[1].answered(((12, 0),))
    assert results(*later) == [11, 11, 11]
    assert len(put) == 2


def test_readers_of_a_mark_that_fails_fail_and_the_next_ones_try_again() -> None:
    put: list[ReadMark] = []
    marks = ReadMarks(put.append)
    first, later = marks.wait(), marks.wait()
    error = NotOrdered("no-quorum", "1 of 3", unknown=True)
    put[0].fail(error)
    assert results(first, later) == [error, None]
    put[1].answered(((1, 0),))
    assert results(later) == [0]


def test_mark_that_cannot_be_put_fails_its_readers() -> None:
    error = NotOrdered("no-quorum", "1 of 3", unknown=False)

    def refuse(mark: ReadMark) -> None:
        raise error

    assert results(ReadMarks(refuse).wait()) == [error]


def test_stopped_node_fails_all_readers() -> None:
    marks = ReadMarks(lambda mark: None)
    first, later = marks.wait(), marks.wait()
    error = NotOrdered("not-running", "stopped", unknown=False)
    marks.fail(error)
    assert results(first, later) == [error, error]


def test_reader_that_gave_up_does_not_keep_the_others_from_their_result() -> None:
    put: list[ReadMark] = []
    marks = ReadMarks(put.append)
    first = marks.wait()
    impatient, patient = marks.wait(), marks.wait()
    impatient.addErrback(lambda failure: None).cancel()
    put[0].answered(((3, 0),))
    put[1].answered(((5, 0),))
    assert results(first, patient) == [2, 4]
