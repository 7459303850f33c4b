"""Division of a refresh."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.spark.pipeline.buckets import Bucket
from fyrehose_twisted.spark.pipeline.refresh import _BatchSpan, groups

BUCKETS = st.builds(Bucket, st.sampled_from(["fyrehose://a", "fyrehose://b"]), st.integers(0, 2), st.integers(0, 5))
SPANS = st.builds(_BatchSpan, st.just(0), st.just(1), st.integers(0, 100))


@given(st.dictionaries(BUCKETS, SPANS), st.integers(1, 150))
def test_buckets_are_refreshed_in_order_as_many_together_as_allowed(spans: dict[Bucket, _BatchSpan], most: int) -> None:
    found = list(groups(spans, most))
    assert [one for some in found for one in some.items()] == sorted(spans.items())
    rows = [sum(span.rows for span in some.values()) for some in found]
    assert all(len(some) == 1 or count <= most for some, count in zip(found, rows, strict=True))
    firsts = [next(iter(some.values())).rows for some in found]
    assert all(count + first > most for count, first in zip(rows, firsts[1:], strict=False))
