"""Sealed records over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from query.bench import Bench
from suite.sealing import ring, seal_one, sealer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.envelope import encode_envelope, wrap
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, encode_term_start
from fyrehose_twisted.payloads import PayloadReader, envelope_finder
from fyrehose_twisted.query.service import QueryService
from fyrehose_twisted.sealing.key_file import create_key_ring, replace_key_ring
from fyrehose_twisted.sealing.key_source import KeySource

STREAM = "fyrehose://test"


@pytest.fixture
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeySource:
    path = tmp_path_factory.mktemp("keys") / "keys"
    create_key_ring(path, ring(1, stream=STREAM))
    return KeySource(path)


class Sealed:
    """Bench whose stream has records 1 to 6, of which 1, 3 and 6 are genuine."""

    def __init__(self, bench: Bench, keys: KeySource) -> None:
        self.bench = bench
        self.reader = PayloadReader([keys])
        bench.make(bare=self.reader, envelopes=envelope_finder)
        self.sealer = sealer(ring(1, stream=STREAM))
        first = self.message(0)
        forged = seal_one(sealer(ring(1, stream="fyrehose://other")), b"?", encode_envelope(b"forger!!", 0))
        bench.put(first, forged, self.message(1), wrap(b"forger!!", 1, b"plain"), b"x", self.message(2))

    def message(self, number: int) -> bytes:
        return seal_one(self.sealer, b'{"n": %d}' % number, encode_envelope(b"someones", number))


@pytest.fixture
def sealed(bench: Bench, keys: KeySource) -> Sealed:
    return Sealed(bench, keys)


def test_a_range_has_opened_records_only(sealed: Sealed, records: str) -> None:
    answer = sealed.bench.ask(records)
    assert [(one["sequence"], one["json"]) for one in answer.json] == [(1, {"n": 0}), (3, {"n": 1}), (6, {"n": 2})]
    for query in ("last=2", "repeats=marked&last=2"):
        assert sealed.bench.ask(f"{records}?{query}").numbers == [3, 6]
    assert sealed.bench.ask(f"{records}?limit=2").numbers == [1, 3]
    assert sealed.bench.ask(f"{records}?where=n%3E%600%60").numbers == [3, 6]


def test_a_stream_has_opened_records_only_and_reports_no_gap(sealed: Sealed, records: str) -> None:
    whole, live = sealed.bench.follow(f"{records}?from=1"), sealed.bench.follow(records)
    sealed.bench.put(b"plain", sealed.message(3))
    sealed.bench.advance()
    assert (whole.told, whole.skipped) == ([1, 3, 6, 8], [])
    assert (live.told, live.skipped) == ([8], [])
    assert json.loads(live.frames()[-1].data)["json"] == {"n": 3}


def test_a_replayed_record_is_a_repeat(sealed: Sealed, records: str) -> None:
    data = sealed.message(3)
    sealed.bench.put(data)
    before = sealed.bench.ask(records).numbers
    sealed.bench.put(data)
    assert sealed.bench.ask(records).numbers == before


def test_refused_records_are_counted(sealed: Sealed, records: str) -> None:
    sealed.bench.ask(records)
    assert sealed.reader.refused == {(STREAM, "seal_forged"): 1, (STREAM, "seal_missing"): 2}
    metrics = sealed.bench.ask("/metrics").body.decode()
    assert 'fyrehose_query_refused_total{reason="seal_forged",stream="fyrehose://test"} 1.0' in metrics


def test_the_start_of_a_term_is_neither_shown_nor_counted(bench: Bench, keys: KeySource, records: str) -> None:
    reader = PayloadReader([keys])
    bench.make(bare=reader, envelopes=envelope_finder)
    bench.put(encode_term_start(TermStart(1, 0, 1)))
    assert bench.ask(f"{records}?repeats=marked").numbers == []
    assert not reader.refused


def test_records_of_other_streams_are_shown_as_they_are(sealed: Sealed) -> None:
    sealed.bench.put(wrap(b"someones", 0, b"plain"), stream="fyrehose://open")
    assert sealed.bench.ask("/streams/fyrehose-open/records").json[0]["text"] == "plain"


def test_two_key_files_of_one_stream_are_refused(keys: KeySource) -> None:
    with pytest.raises(ConfigurationError, match=f"two seal key files are for {STREAM}"):
        PayloadReader([keys, keys])


def test_the_service_shows_new_records_after_its_keys_were_read_again(
    sealed: Sealed, keys: KeySource, records: str
) -> None:
    bench = sealed.bench
    service = QueryService(bench.site.sources, "tcp:0", keys=[keys], reactor=bench.clock)
    bench.site = service.site
    live = bench.follow(records)
    sealed.sealer.ring = ring(2, 1, stream=STREAM)
    bench.put(sealed.message(3))
    bench.advance()
    assert live.told == []
    replace_key_ring(Path(keys.path), ring(2, 1, stream=STREAM))
    [reloader] = service._reloaders
    reloader.reload()
    assert bench.follow(f"{records}?last=2").told == [6, 7]
    bench.put(sealed.message(4))
    bench.advance()
    assert live.told == [8]
