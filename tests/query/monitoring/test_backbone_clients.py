"""Client lists of watched backbones: parsing, rates and malformed lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.query.monitoring.backbone_clients import (
    MAX_ROWS,
    RATES,
    UNLISTED,
    BackboneClients,
    ClientRates,
    MalformedClients,
    clients_url,
    parse_clients,
)
from fyrehose_twisted.query.monitoring.scraping import ScrapeResult

START = 1_700_000_000.0


def row(address: str = "192.0.2.7:1", **more: Any) -> dict[str, Any]:
    return {"address": address, "kind": "subscriber", **more}


def page(*rows: Any, **more: Any) -> bytes:
    return json.dumps({"clients": len(rows), "list": rows, **more}).encode()


def scraped(at: float, *rows: Any, **more: Any) -> ScrapeResult[BackboneClients]:
    return ScrapeResult(True, "", at, at, 0, parse_clients(page(*rows, **more)))


def test_url_of_the_client_list_is_derived_from_the_metrics_url() -> None:
    assert clients_url("http://h:1/metrics") == "http://h:1/clients?limit=200"
    assert clients_url("http://h:1/one/metrics?x=y") == "http://h:1/one/clients?limit=200"


def test_missing_or_invalid_client_figures_are_unknown() -> None:
    (one,) = parse_clients(page(row(lag=3, published="many", delivered=-1, silent_seconds=True, token="t"))).rows
    assert one["lag"] == 3
    assert {one[name] for name in (*RATES, "silent_seconds", "retransmitting")} == {None}
    assert "token" not in one


def test_client_list_is_limited_and_has_each_address_once() -> None:
    many = parse_clients(page(*(row(f"h:{port}") for port in range(MAX_ROWS + 1))))
    assert (many.total, len(many.rows)) == (MAX_ROWS + 1, MAX_ROWS)
    assert len(parse_clients(page(row(), row())).rows) == 1


@pytest.mark.parametrize(
    "content",
    [
        *(b"\xff", b"", b"[]", b"{}", b"<html>", b'{"clients": 1, "list": {}}', b'{"clients": true, "list": []}'),
        *(page("x"), page(row(kind=1)), page({"address": "h:1"}), page(row("h" * 65)), page(row(""))),
        *(b'{"clients": NaN, "list": []}', b"[" * 100_000, b'{"clients": 1%b, "list": []}' % (b"0" * 5_000)),
    ],
)
def test_malformed_client_list_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedClients):
        parse_clients(content)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*RATES, "lag", "kind"]), inner),
    max_leaves=9,
)


@given(st.lists(_JSON, max_size=3), _JSON, st.dictionaries(st.sampled_from([*RATES, "lag", "address", "kind"]), _JSON))
def test_arbitrary_json_is_a_client_list_or_refused(rows: list[Any], unlisted: Any, more: dict[str, Any]) -> None:
    content = {"clients": 1, "list": [*rows, {**row(), **more}], "unlisted": unlisted}
    try:
        parsed = parse_clients(json.dumps(content).encode())
    except MalformedClients:
        return
    told = ClientRates().describe("one", ScrapeResult(True, "", START, START, 0, parsed), START)
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_client_rates_cover_the_last_seconds() -> None:
    rates = ClientRates()
    for step in range(6):
        at = START + 2 * step
        more = {"connected_seconds": 2 * step, "published": step**2, "delivered_bytes": 500 * step}
        told = rates.describe("one", scraped(at, row(**more)), at)
        (one,) = told["list"]
        if not step:
            assert set(one["rates"].values()) == {None}
    assert one["rates"]["published"] == pytest.approx((25 - 4) / 6)
    assert one["rates"]["delivered_bytes"] == 250
    # The same list again is no second sample, and an outdated one has no rates.
    assert rates.describe("one", scraped(at, row(**more)), at + 1)["list"][0]["rates"] == one["rates"]
    assert set(rates.describe("one", scraped(at, row(**more)), at + 60)["list"][0]["rates"].values()) == {None}


@pytest.mark.parametrize(
    "second", [{"connected_seconds": 1, "published": 50}, {"connected_seconds": 12, "published": 5}]
)
def test_rates_of_a_rejoined_client_start_over(second: dict[str, Any]) -> None:
    rates = ClientRates()
    rates.describe("one", scraped(START, row(connected_seconds=10, published=20)), START)
    told = rates.describe("one", scraped(START + 2, row(**second)), START + 2)
    assert told["list"][0]["rates"]["published"] is None


def test_unlisted_clients_are_forgotten() -> None:
    rates = ClientRates()
    for step in range(50):
        rates.describe("one", scraped(START + step, row(f"h:{step}", published=step)), START + step)
    assert len(rates._samples["one"]) == 1
    rates.retain({})
    assert rates._samples == {}


def test_publishers_without_keepalives_share_one_row() -> None:
    told = parse_clients(page(row(), unlisted={"published": 5, "published_bytes": 50}))
    assert [one["address"] for one in told.rows] == ["192.0.2.7:1", UNLISTED]
    assert told.rows[1]["published"] == 5
    assert len(parse_clients(page(row(), unlisted={"published": 0})).rows) == 1


def test_outdated_client_list_is_reported_with_its_age() -> None:
    old = scraped(START, row())._replace(up=False, why="it answers 500")
    told = ClientRates().describe("one", old, START + 9)
    assert (told["up"], told["why"], told["age"], told["total"]) == (False, "it answers 500", 9, 1)
