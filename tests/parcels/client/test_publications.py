from __future__ import annotations

from fyrehose_twisted.parcels.client.publications import Publication, PublicationDeadlines


def test_only_publications_without_a_result_expire() -> None:
    deadlines = PublicationDeadlines()
    first, second, third = (Publication(1, deadlines.publication_done) for _ in range(3))
    for deadline, publication in enumerate((first, second, third)):
        deadlines.add(publication, 10.0 + deadline)
    assert list(deadlines.take_expired(9.9)) == []
    second.answered(((7, 1),))
    assert list(deadlines.take_expired(11.0)) == [first]
    assert len(deadlines) == 1
    assert list(deadlines.take_expired(12.0)) == [third]
    assert len(deadlines) == 0


def test_publications_that_end_while_one_expires_do_not_expire() -> None:
    deadlines = PublicationDeadlines()
    first, second = (Publication(1, deadlines.publication_done) for _ in range(2))
    for publication in (first, second):
        deadlines.add(publication, 1.0)
    for publication in deadlines.take_expired(1.0):
        assert publication is first
        second.answered(((7, 1),))
    assert len(deadlines) == 0
