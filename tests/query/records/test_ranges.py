"""Ranges of records over HTTP."""

from __future__ import annotations

import json
from base64 import b64decode
from random import Random
from typing import Any

import pytest
from query.bench import Bench

from fyrehose_twisted.query.config import QueryConfig


def test_range_returns_all_records(bench: Bench, records: str) -> None:
    bench.put(b'{"a": 1.10}', b"text", b"\xff\x00", b"null", b'"\\ud800"', b"")
    answer = bench.ask(records)
    assert answer.code == 200
    assert [record["sequence"] for record in answer.json] == [1, 2, 3, 4, 5, 6]
    assert {record["stream"] for record in answer.json} == {"fyrehose://test"}
    assert b'"json":{"a": 1.10}}' in answer.body  # The payload is returned verbatim.
    assert answer.json[1]["text"] == "text"
    assert b64decode(answer.json[2]["data"]) == b"\xff\x00"
    assert answer.json[3]["json"] is None
    assert "json" in answer.json[4]
    assert answer.json[5]["text"] == ""
    assert answer.json[1]["received_at"] == 1_700_000_000_000_001
    assert answer.next is None


def test_base64_encoding_is_used_on_request(bench: Bench, records: str) -> None:
    bench.put(b'{"a": 1}', b"text")
    assert [b64decode(record["data"]) for record in bench.ask(f"{records}?encoding=base64").json] == [
        b'{"a": 1}',
        b"text",
    ]


def test_line_ends_in_json_do_not_end_lines(bench: Bench, records: str) -> None:
    bench.put(b'{\r\n"a":\n1}')
    (line,) = bench.ask(records, accept="application/x-ndjson").body.splitlines()
    assert json.loads(line)["json"] == {"a": 1}


def test_range_between_two_numbers_is_inclusive(bench: Bench, records: str) -> None:
    bench.numbers(9)
    assert bench.ask(f"{records}?from=3&to=5").numbers == [3, 4, 5]
    assert bench.ask(f"{records}?from=0:8").numbers == [8, 9]
    assert bench.ask(f"{records}?to=2").numbers == [1, 2]
    assert bench.ask(f"{records}?from=10").numbers == []
    assert bench.ask(f"{records}?from=5&to=4").numbers == []


def test_pages_cover_the_range(bench: Bench, records: str) -> None:
    bench.numbers(25)
    found, path, pages = [], f"{records}?from=2&to=24&limit=10", 0
    while path is not None:
        answer = bench.ask(path)
        found += answer.numbers
        path = answer.next
        pages += 1
    assert (found, pages) == (list(range(2, 25)), 3)


def test_page_ends_at_its_byte_limit(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(page_bytes=2_000))
    bench.put(*[b"x" * 900] * 5)
    answer = bench.ask(records)
    assert answer.numbers == [1, 2, 3]
    assert bench.ask(answer.next).numbers == [4, 5]


def test_range_ends_at_the_watermark(bench: Bench, records: str) -> None:
    bench.numbers(3)
    bench.numbers(2, first=6)
    assert bench.ask(records).numbers == [1, 2, 3]
    bench.journal().lose(0, 4, 5)
    bench.journal().commit()
    assert bench.ask(records).numbers == [1, 2, 3, 6, 7]
    assert bench.ask(f"{records}?last=3").numbers == [3, 6, 7]


def test_last_returns_the_newest_records(bench: Bench, records: str) -> None:
    bench.numbers(2_000)
    assert bench.ask(f"{records}?last=3").numbers == [1_998, 1_999, 2_000]
    where = "where=n%20%3C%20%6015%60"
    assert bench.ask(f"{records}?last=3&{where}").numbers == [12, 13, 14]
    assert bench.ask(f"{records}?last=30&{where}").numbers == list(range(1, 15))
    assert bench.ask(f"{records}?last=1000").numbers == list(range(1_001, 2_001))


@pytest.mark.parametrize("where", ["", "&where=length(@)%20%3E%20%60100%60"])
@pytest.mark.parametrize("last", [1, 7, 300, 1_000])
@pytest.mark.parametrize(("page_bytes", "scan_records"), [(1, 10**6), (700, 10**6), (10**6, 1), (700, 300)])
def test_previous_links_lead_to_the_start(
    bench: Bench, where: str, last: int, page_bytes: int, scan_records: int
) -> None:
    bench.make(
        QueryConfig(page_bytes=page_bytes, scan_records=scan_records, burst_per_client=9_999, max_connections=9_999)
    )
    stream, sizes = "hydra://net", [3 if number % 50 else number for number in range(400)]
    for epoch in (2, 4):
        bench.put(*[b'"%b"' % (b"x" * size) for size in sizes], epoch=epoch, stream=stream)
    found: list[tuple[int, int]] = []
    path: str | None = f"/streams/hydra-net/records?last={last}{where}"
    pages = 0
    while path is not None:
        answer = bench.ask(path)
        assert len(answer.json) <= last
        assert answer.next is None
        found[:0] = [(record["epoch"], record["sequence"]) for record in answer.json]
        path = answer.previous
        pages += 1
    wanted = [number for number, size in enumerate(sizes, 1) if size > 100 or not where]
    assert found == [(epoch, number) for epoch in (2, 4) for number in wanted]
    assert pages > 1 or len(found) <= last


def test_long_lost_ranges_are_skipped(bench: Bench, records: str) -> None:
    bench.numbers(3)
    bench.journal().lose(0, 4, 10**13)
    bench.numbers(3, first=10**13 + 1)
    assert bench.ask(f"{records}?last=5").numbers == [2, 3, *range(10**13 + 1, 10**13 + 4)]
    assert bench.ask(f"{records}?last=1&where=n%3C%602%60&to={10**13}").numbers == [1]


def test_last_with_a_limit_returns_the_newest_records_before_it(bench: Bench, records: str) -> None:
    bench.numbers(20)
    assert bench.ask(f"{records}?last=3&to=15").numbers == [13, 14, 15]
    assert bench.ask(f"{records}?last=3&to=2").numbers == [1, 2]
    assert bench.ask(f"{records}?last=3&to=0").numbers == []
    assert bench.ask(f"{records}?last=3&to=2").previous is None
    back = bench.ask(f"{records}?last=3&to=99&where=n&encoding=base64")
    assert back.previous == f"{records}?last=3&to=0:17&where=n&encoding=base64"


def test_last_returns_records_across_epochs(bench: Bench) -> None:
    for epoch in (2, 3, 5):
        bench.numbers(4, epoch=epoch, stream="hydra://net")
    answer = bench.ask("/streams/hydra-net/records?last=6")
    assert [(record["epoch"], record["sequence"]) for record in answer.json] == [
        *((3, 3), (3, 4)),
        *((5, 1), (5, 2), (5, 3), (5, 4)),
    ]


def test_range_returns_records_across_epochs(bench: Bench) -> None:
    for epoch in (2, 3):
        bench.numbers(4, epoch=epoch, stream="hydra://net")
    path: Any = "/streams/hydra-net/records?from=2:3&to=3:2&limit=1"
    found = []
    while path is not None:
        answer = bench.ask(path)
        found += [(record["epoch"], record["sequence"]) for record in answer.json]
        path = answer.next
    assert found == [(2, 3), (2, 4), (3, 1), (3, 2)]
    answer = bench.ask("/streams/hydra-net/records?from=3")
    assert (answer.code, answer.json["error"]) == (400, "bad-request")
    assert "EPOCH:3" in answer.json["message"]


def test_epoch_is_optional_with_a_single_epoch(bench: Bench) -> None:
    bench.numbers(4, epoch=7, stream="hydra://net")
    assert bench.ask("/streams/hydra-net/records?from=3").numbers == [3, 4]


def test_range_removed_by_retention_is_gone(bench: Bench, records: str) -> None:
    journal = bench.journal()
    journal.begin(0, 10)
    bench.numbers(3, first=10)
    answer = bench.ask(f"{records}?from=4")
    assert (answer.code, answer.json["error"], answer.json["oldest"]) == (410, "not-held", "10")
    assert bench.ask(f"{records}?from=0").numbers == [10, 11, 12]
    assert bench.ask(records).numbers == [10, 11, 12]


class TestTimes:
    def test_range_between_two_times_is_inclusive(self, bench: Bench, records: str) -> None:
        for number in range(10):
            bench.put(b"x", at=1_700_000_000 + number)
        assert bench.ask(f"{records}?since=1700000003&until=1700000006").numbers == [4, 5, 6]
        assert bench.ask(f"{records}?since=2023-11-14T22:13:23Z&until=2023-11-14T23:13:26%2B01:00").numbers == [4, 5, 6]
        assert bench.ask(f"{records}?since=2023-11-14T22:13:29").numbers == [10]
        assert bench.ask(f"{records}?since=1700000003.000001&limit=1").numbers == [5]
        assert bench.ask(f"{records}?until=1").numbers == []

    def test_page_links_keep_the_times(self, bench: Bench, records: str) -> None:
        for number in range(10):
            bench.put(b"x", at=1_700_000_000 + number)
        answer = bench.ask(f"{records}?since=1700000003&until=1700000008&limit=2&encoding=base64")
        assert answer.numbers == [4, 5]
        answer = bench.ask(answer.next)
        assert answer.numbers == [6, 7]
        assert answer.json[0]["data"] == "eA=="
        assert bench.ask(answer.next).numbers == [8]

    def test_time_range_includes_late_repairs(self, bench: Bench, records: str) -> None:
        bench.put(b"x", first=1, at=1_700_000_001)
        bench.put(b"x", first=3, at=1_700_000_003)
        bench.put(b"x", first=2, at=1_700_000_009)
        bench.put(b"x", first=4, at=1_700_000_004)
        assert bench.ask(f"{records}?until=1700000005").numbers == [1, 3, 4]
        assert bench.ask(f"{records}?since=1700000004").numbers == [2, 4]

    def test_blocks_older_than_since_are_not_read(
        self, bench: Bench, records: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(5):
            bench.put(b"x", at=1_700_000_000 + number)
        read: list[int] = []
        source = bench.site.sources.get("fyrehose-test")
        (segment,) = source.reader.segments
        original = type(segment).block

        def block(self: Any, file: Any, header: Any) -> Any:
            read.append(header.base)
            return original(self, file, header)

        monkeypatch.setattr(type(segment), "block", block)
        assert bench.ask(f"{records}?since=1700000003").numbers == [4, 5]
        assert read == [4, 5]


class TestFilters:
    def test_filter_selects_by_payload(self, bench: Bench, records: str) -> None:
        bench.put(b'{"kind": "a", "n": 1}', b'{"kind": "b"}', b"a", b'{"kind": "a", "n": 0}', b"[1]")
        assert bench.ask(f"{records}?where=kind%3D%3D'a'").numbers == [1, 4]
        assert bench.ask(f"{records}?where=n").numbers == [1, 4]
        assert bench.ask(f"{records}?where=%5B0%5D").numbers == [5]

    def test_long_scan_ends_with_a_link(self, bench: Bench, records: str) -> None:
        bench.make(QueryConfig(scan_records=1_000))
        bench.numbers(5_000)
        path: Any = f"{records}?where=n%3E%604998%60"
        found, pages = [], 0
        while path is not None:
            answer = bench.ask(path)
            found += answer.numbers
            path, pages = answer.next, pages + 1
        assert found == [4_999, 5_000]
        assert pages == 5

    def test_records_that_a_filter_cannot_handle_do_not_match(self, bench: Bench, records: str) -> None:
        bench.put(b'{"tags": 5}', b'{"tags": ["x"]}', b"{}")
        assert bench.ask(f"{records}?where=contains(tags,'x')").numbers == [2]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("from=x", "from must be SEQUENCE or EPOCH:SEQUENCE"),
        ("from=-1", "from must be"),
        ("from=1:", "from must be"),
        ("from=99999999999999999999", "from must be"),
        ("from=1&from=2", "from is given 2 times"),
        ("to=1.5", "to must be"),
        ("since=yesterday", "since must be a time"),
        ("since=2026-13-01", "since must be a time"),
        ("until=1e9", "until must be a time"),
        ("where=", "the filter is not JMESPath"),
        ("where=a%3D%3D", "the filter is not JMESPath"),
        ("where=%5Ba,b%5D", "must not contain a multi select list"),
        ("where=to_string(@)", "must not call to_string"),
        ("where=%FF", "where is not UTF-8"),
        ("limit=0", "limit must be a number from 1 to 1000"),
        ("limit=1001", "limit must be"),
        ("limit=%D9%A1", "limit must be"),
        ("encoding=utf-8", "encoding must be base64"),
        ("x=1", "unknown parameter 'x'"),
    ],
)
def test_invalid_query_is_rejected(bench: Bench, records: str, query: str, message: str) -> None:
    bench.numbers(1)
    answer = bench.ask(f"{records}?{query}")
    assert (answer.code, answer.json["error"]) == (400, "bad-request")
    assert message in answer.json["message"]


def test_filter_length_is_limited(bench: Bench, records: str) -> None:
    bench.numbers(1)
    assert bench.ask(f"{records}?where={'a' * 1_024}").code == 200
    assert bench.ask(f"{records}?where={'a' * 1_025}").code == 400


def test_unknown_stream_is_not_found(bench: Bench) -> None:
    bench.numbers(1)
    for path in ("/streams/x", "/streams/x/records", "/streams/..%2F..%2Fetc/records", "/streams/%00"):
        answer = bench.ask(path)
        assert (answer.code, answer.json["error"]) == (404, "no-stream"), path


def test_stream_name_with_percent_signs_is_found(bench: Bench) -> None:
    bench.numbers(2, stream="fyrehose://a/b c")
    (told,) = bench.ask("/streams").json
    assert told["name"] == "fyrehose-a%2Fb%20c"
    for path in ("/streams/fyrehose-a%2Fb%20c/records", "/streams/fyrehose-a%252Fb%2520c/records"):
        assert bench.ask(path).numbers == [1, 2]


def test_description_of_a_stream_lists_epochs_and_losses(bench: Bench) -> None:
    bench.numbers(3)
    bench.journal().lose(0, 4, 5)
    bench.numbers(2, first=6)
    bench.numbers(1, first=10)
    told = bench.ask("/streams/fyrehose-test").json
    (epoch,) = told["epochs"]
    assert (told["records"], told["segments"], told["followers"], told["problem"]) == (6, 1, 0, "")
    assert told["bytes"] > 0
    assert told["last_received_at"] == 1_700_000_000_000_002
    assert epoch == {
        "epoch": 0,
        "first": 1,
        "next": 8,
        "last": 10,
        "records": 6,
        "lost": 2,
        "missing": 2,
        "lost_ranges": [[4, 5]],
        "missing_ranges": [[8, 9]],
    }


def test_long_scan_does_not_block_other_requests(bench: Bench, records: str) -> None:
    bench.numbers(20_000)
    slow, quick = bench.client(), bench.client()
    slow.send(f"{records}?where=n%3E%6019999%60")
    bench.clock.turn()
    assert slow.wire.value() == b""
    quick.send(f"{records}?limit=1")
    while not quick.wire.value():
        bench.clock.turn()
    assert quick.response().numbers == [1]
    assert slow.wire.value() == b""
    slow.settle()
    assert slow.response().numbers == [20_000]


def test_scan_stops_when_its_client_disconnects(bench: Bench, records: str) -> None:
    bench.numbers(20_000)
    client = bench.client()
    client.send(f"{records}?where=n%3E%6019999%60")
    bench.clock.turn()
    assert len(bench.site.scans) == 1
    client.hang_up()
    bench.clock.turn()
    bench.clock.turn()
    assert len(bench.site.scans) == 0


def test_number_of_waiting_scans_is_limited(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(max_reads=1, max_waiting=1))
    bench.numbers(5_000)
    clients = [bench.client() for _ in range(3)]
    for client in clients:
        client.send(f"{records}?where=n%3E%604999%60")
    answer = clients[2].response()
    assert (answer.code, answer.json["error"], answer.headers["retry-after"]) == (503, "busy", "1")
    clients[0].settle()
    assert [client.response().numbers for client in clients[:2]] == [[5_000]] * 2


def test_damaged_records_are_omitted_and_counted(bench: Bench, records: str) -> None:
    for _ in range(3):
        bench.put(b"x" * 100)
    (path,) = bench.path.glob("*/*.log")
    data = bytearray(path.read_bytes())
    data[data.index(b"x" * 100, data.index(b"x" * 100) + 100)] ^= 1
    path.write_bytes(data)
    bench.make()
    assert bench.ask(records).numbers in ([1, 3], [1])
    bench.ask(records)
    assert 'fyrehose_query_damaged_total{stream="fyrehose://test"}' in bench.ask("/metrics").body.decode()


def test_answers_are_compressed(bench: Bench, records: str) -> None:
    bench.numbers(1_000)
    plain, packed = bench.ask(records), bench.ask(records, accept_encoding="br, gzip;q=0.5")
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
    assert packed.body == plain.body
    assert int(packed.headers["content-length"]) * 5 < int(plain.headers["content-length"])
    assert "content-encoding" not in bench.ask(records, accept_encoding="gzip;q=0").headers


def test_head_has_no_body(bench: Bench, records: str) -> None:
    bench.numbers(3)
    answer = bench.ask(records, "HEAD")
    assert (answer.code, answer.body) == (200, b"")


def test_other_methods_are_rejected(bench: Bench, records: str) -> None:
    for method in ("POST", "DELETE", "PUT"):
        answer = bench.ask(records, method)
        assert (answer.code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_large_records_do_not_delay_others(bench: Bench, records: str) -> None:
    bench.put(*[b'{"a": [%b]}' % b",".join([b"1"] * 10_000)] * 40)
    slow, quick = bench.client(), bench.client()
    slow.send(f"{records}?where=a%5B%3F%40%3E%605%60%5D")
    quick.send(f"{records}?limit=1")
    turns = 0
    while not quick.wire.value():
        bench.clock.turn()
        turns += 1
    assert slow.wire.value() == b""
    slow.settle()
    assert slow.response().json == []


def test_last_page_of_large_records_is_bounded_in_bytes(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(page_bytes=100_000))
    bench.put(*[b"x" * 30_000] * 20)
    answer = bench.ask(f"{records}?last=1000")
    assert answer.numbers == [17, 18, 19, 20]
    assert bench.ask(answer.previous).numbers == [13, 14, 15, 16]


def test_concurrent_scans_are_limited_per_client(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(max_reads=3, reads_per_client=2))
    bench.numbers(20_000)
    greedy = [bench.client() for _ in range(5)]
    for client in greedy:
        client.send(f"{records}?where=n%3E%6019999%60")
    assert (len(bench.site.scans), bench.site.scans.waiting) == (2, 3)
    other = bench.client(host="192.0.2.7")
    other.send(f"{records}?limit=1")
    while not other.wire.value():
        bench.clock.turn()
    assert other.response().numbers == [1]
    assert all(client.wire.value() == b"" for client in greedy)
    greedy[4].hang_up()
    assert bench.site.scans.waiting <= 2
    greedy[0].settle()
    assert [client.response().numbers for client in greedy[:4]] == [[20_000]] * 4
    assert (len(bench.site.scans), bench.site.scans.waiting) == (0, 0)


def test_request_for_the_newest_records_is_not_delayed_by_scans_of_its_client(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(max_reads=2, reads_per_client=2))
    bench.numbers(20_000)
    filters = [bench.client() for _ in range(4)]
    for client in filters:
        client.send(f"{records}?where=n%3E%6019999%60")
    newest = bench.client()
    newest.send(f"{records}?last=2")
    while not newest.wire.value():
        bench.clock.turn()
    assert newest.response().numbers == [19_999, 20_000]
    assert all(client.wire.value() == b"" for client in filters)


@pytest.mark.parametrize("query", ["?last=10", "?last=10&where=n", "?where=n", "?since=0"])
def test_small_blocks_are_read_together(bench: Bench, records: str, query: str) -> None:
    for _ in range(300):
        bench.put(b'{"n": 1}')
    (source,) = bench.site.sources
    source.refresh()
    reads = []
    read = source.reader.read
    source.reader.read = lambda *arguments: reads.append(arguments) or read(*arguments)
    assert bench.ask(records + query).numbers == list(range(291, 301) if "last" in query else range(1, 301))
    assert len(reads) <= (1 if query == "?last=10" else 6)


@pytest.mark.parametrize("last", [1, 3, 7, 1_000])
@pytest.mark.parametrize(
    "narrowed",
    ["from=4", "from=4&to=9", "from=12", "since=1700000004", "until=1700000009", "since=1700000003&until=1700000008"],
)
def test_last_with_other_parameters_is_paged(bench: Bench, records: str, last: int, narrowed: str) -> None:
    for number in range(1, 13):
        bench.put(b'{"n": %d}' % number, first=number, at=1_700_000_000 + number)
    wanted = bench.ask(f"{records}?{narrowed}").numbers
    assert bench.ask(f"{records}?{narrowed}&last={last}&limit=2").numbers == wanted[-min(last, 2) :]
    path, found = f"{records}?{narrowed}&last={last}", []
    while path is not None:
        answer = bench.ask(path)
        assert len(answer.numbers) <= last
        found[:0] = answer.numbers
        path = answer.previous
    assert found == wanted


def test_stream_with_last_and_from_begins_at_the_later_one(bench: Bench, records: str) -> None:
    bench.numbers(12)
    assert bench.follow(f"{records}?from=10&last=5").told == [10, 11, 12]
    assert bench.follow(f"{records}?from=3&last=5").told == [8, 9, 10, 11, 12]


def test_blocks_of_any_size_are_read_once_and_in_order(bench: Bench, records: str) -> None:
    rng, held = Random(3), []
    first = 1
    while first < 6_000:
        count = rng.choice([1, 1, 1, 2, 40, 700, 3_000])
        bench.put(*[b'{"n": %d}' % number for number in range(first, first + count)], first=first)
        held += range(first, first + count)
        first += count
        if rng.random() < 0.3:
            bench.journal().lose(0, first, first + 4)
            first += 5
    bench.journal().commit()
    path, found = records, []
    while path is not None:
        answer = bench.ask(path)
        found += [(record["sequence"], record["json"]["n"]) for record in answer.json]
        path = answer.next
    assert found == [(number, number) for number in held]


def test_scans_end_when_the_service_stops(bench: Bench, records: str) -> None:
    bench.make(QueryConfig(reads_per_client=1))
    bench.numbers(20_000)
    clients = [bench.client() for _ in range(3)]
    for client in clients:
        client.send(f"{records}?where=n%3E%6019999%60")
    bench.clock.turn()
    bench.site.scans.stop()
    bench.clock.advance(0)
    assert [client.response().code for client in clients] == [503] * 3
    assert clients[2].response().json["error"] == "stopping"


def test_pipelining_ends_for_a_client_that_does_not_read(bench: Bench, records: str) -> None:
    bench.put(*[b"x" * 1_000] * 50)
    client = bench.client()
    client.channel.pauseProducing()
    for _ in range(2):
        client.channel.dataReceived(f"GET {records} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    client.settle()
    assert client.wire.value().count(b"HTTP/1.1 200") == 1
    assert client.wire.disconnecting
