"""Clients page beside the metrics of a backbone."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.client_table import CLIENT_LIFETIME
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.service.clients_page import MAX_ROWS, describe_clients
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Dialect, Flags, Holding, Holds, Keepalive, Packet, Push, Request
from fyrehose_twisted.fyrehose.wire.run_codec import VECTOR_MINIMUM
from fyrehose_twisted.fyrehose.wire.token import make_token

START = 1_000.0
ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)
CAROL: Address = ("192.0.2.9", 4003)
TOKEN = bytes(range(16))
QUIET = Flags.NOSUBSCRIBE | Flags.NOJOURNAL


class Bench:
    """A backbone with a controlled clock."""

    def __init__(self, config: BackboneConfig | None = None) -> None:
        self.now = START
        self.node = Backbone(config or BackboneConfig(), RandomForward(Random(1)), now=START)

    def hear(self, peer: Address, *packets: Packet) -> None:
        self.node.receive_batch(Batch.pack([(encode(packet), peer) for packet in packets]), self.now)
        self.node.drain()

    def join(self, peer: Address, flags: Flags = Flags.NONE) -> None:
        self.hear(peer, Keepalive(flags=flags, token=TOKEN))

    def told(self, limit: int = MAX_ROWS) -> dict[str, Any]:
        told = describe_clients(self.node, self.now, limit)
        assert json.loads(json.dumps(told)) == told
        return told

    def of(self, peer: Address) -> dict[str, Any]:
        (row,) = (row for row in self.told()["list"] if row["address"] == f"{peer[0]}:{peer[1]}")
        return row  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (Flags.RELAY | Flags.EXTENSIONS, "relay"),
        (Flags.DURABLE | Flags.EXTENSIONS, "journal"),
        (Flags.NONE, "subscriber"),
        (Flags.NOJOURNAL, "subscriber"),
        (QUIET, "publisher"),
        (Flags.NOSUBSCRIBE, "other"),
    ],
)
def test_the_kind_of_a_client_follows_from_its_flags(flags: Flags, kind: str) -> None:
    bench = Bench()
    bench.join(ALICE, flags)
    row = bench.of(ALICE)
    assert (row["kind"], row["dialect"]) == (kind, Dialect.V2)
    assert row["flags"] == [flag.name for flag in Flags if flag & flags]


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("count", [1, VECTOR_MINIMUM + 8])
def test_client_rows_count_messages_published_and_delivered_while_subscribed(count: int, dialect: Dialect) -> None:
    bench = Bench()
    pushes = [Push(b"four", dialect)] * count
    bench.join(ALICE, QUIET)
    bench.hear(ALICE, *pushes)
    bench.join(BOB)
    bench.hear(ALICE, *pushes)
    bench.hear(BOB, *pushes)
    bench.join(BOB, QUIET)
    bench.hear(ALICE, *pushes)
    alice, bob = bench.of(ALICE), bench.of(BOB)
    assert (alice["published"], alice["published_bytes"], alice["delivered"]) == (3 * count, 12 * count, 0)
    assert (bob["published"], bob["delivered"], bob["delivered_bytes"]) == (count, 2 * count, 8 * count)
    bench.join(BOB)
    bench.hear(ALICE, *pushes)
    assert bench.of(BOB)["delivered"] == 3 * count


def test_the_counters_of_a_rejoining_client_begin_at_zero() -> None:
    bench = Bench()
    bench.join(BOB)
    bench.hear(BOB, Push(b"four"))
    bench.now += CLIENT_LIFETIME + 0.5
    bench.join(BOB)
    row = bench.of(BOB)
    assert (row["published"], row["delivered"], row["connected_seconds"]) == (0, 0, 0)


def test_messages_of_unlisted_addresses_are_summed() -> None:
    bench = Bench()
    for peer in (ALICE, BOB):
        bench.hear(peer, Push(b"four"))
    told = bench.told()
    assert (told["clients"], told["list"], told["last"]) == (0, [], 2)
    assert told["unlisted"] == {"published": 2, "published_bytes": 8}


def test_lag_is_reported_for_durable_journals_that_sent_holds() -> None:
    bench = Bench()
    bench.join(ALICE, Flags.DURABLE | Flags.EXTENSIONS)
    bench.join(BOB)
    bench.hear(BOB, *[Push(b"x")] * 10)
    assert bench.of(ALICE)["lag"] is bench.of(BOB)["lag"] is None
    bench.hear(ALICE, Holds(TOKEN, 1, Holding(1, 7)))
    row = bench.of(ALICE)
    assert (row["durable"], row["lag"]) == (7, 3)
    assert bench.of(BOB)["lag"] is None


def test_sent_and_pending_retransmissions_are_reported() -> None:
    bench = Bench()
    bench.join(ALICE)
    bench.join(BOB)
    bench.hear(ALICE, *[Push(bytes(1_000))] * 1_000)
    assert bench.of(BOB)["requested_seconds"] is None
    bench.now += 0.5
    bench.hear(BOB, Request(BOB, 1, 1_000))
    bench.now += 0.25
    row = bench.of(BOB)
    assert (row["requests"], row["requested_seconds"]) == (1, 0.25)
    assert row["retransmitted"] + row["retransmitting"] == 1_000
    assert 0 < row["retransmitted"] == bench.node.repair_dispatcher.retransmitted
    assert row["retransmitting"] > 0
    assert (bench.of(ALICE)["retransmitted"], bench.of(ALICE)["requests"]) == (0, 0)
    # No state remains once the client is gone.
    bench.now += CLIENT_LIFETIME
    bench.join(BOB)
    assert bench.of(BOB)["retransmitted"] == bench.of(BOB)["retransmitting"] == 0


def test_the_time_since_the_last_keepalive_is_reported() -> None:
    bench = Bench()
    bench.join(ALICE)
    bench.now += 1.5
    bench.join(ALICE)
    bench.now += 0.25
    row = bench.of(ALICE)
    assert (row["connected_seconds"], row["silent_seconds"]) == (1.75, 0.25)


def test_the_client_list_is_limited_and_begins_with_journals() -> None:
    bench = Bench()
    for port in range(5_000, 5_020):
        bench.join(("192.0.2.99", port))
    bench.join(ALICE, QUIET)
    bench.join(CAROL, Flags.DURABLE | Flags.EXTENSIONS)
    told = bench.told(4)
    assert told["clients"] == 22
    assert [row["kind"] for row in told["list"]] == ["journal", "publisher", "subscriber", "subscriber"]
    assert [row["address"] for row in told["list"][2:]] == ["192.0.2.99:5000", "192.0.2.99:5001"]


def test_the_clients_page_hides_tokens_and_the_secret() -> None:
    secret = b"sixteen bytes and a few"
    bench = Bench(BackboneConfig(secret=secret))
    token = make_token(secret, ALICE, Flags.NONE, START)
    bench.hear(ALICE, Keepalive(ALICE, token=token))
    told = json.dumps(bench.told())
    assert bench.told()["clients"] == 1
    assert token.hex() not in told
    assert secret.decode() not in told
    assert "token" not in told
