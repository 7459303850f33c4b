"""Topology of watched services and listed clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fyrehose_twisted.query.monitoring.backbone_clients import UNLISTED
from fyrehose_twisted.query.monitoring.figures import read_figures
from fyrehose_twisted.query.monitoring.scraper import ServiceScrape, parse_metrics
from fyrehose_twisted.query.monitoring.topology import MAX_NODES, WatchedService, describe_topology
from fyrehose_twisted.query.monitoring.trends import Trends

STREAM = 'stream="fyrehose://s"'
NOW = 1_700_000_000.0


def row(address: str, kind: str = "subscriber", **more: Any) -> dict[str, Any]:
    figures = dict.fromkeys(("silent_seconds", "lag", "requests", "retransmitted", "retransmitting"))
    return {"address": address, "kind": kind, **figures, "rates": {"delivered": 7.0}, **more}


def clients(*rows: Mapping[str, Any], up: bool = True, total: int | None = None) -> dict[str, Any]:
    return {"up": up, "list": list(rows), "total": len(rows) if total is None else total}


def service(
    name: str,
    kind: str,
    *samples: str,
    info: str = STREAM,
    listed: dict[str, Any] | None = None,
    up: bool = True,
    lag: float | None = None,
) -> WatchedService:
    lines = [f'fyrehose_info{{service="{kind}",{info}}} 1', *(f"fyrehose_{sample}" for sample in samples)]
    metrics = parse_metrics("".join(f"{line}\n" for line in lines).encode())
    figures = read_figures(ServiceScrape(name, up, "", NOW, NOW, 0, metrics), Trends(), NOW)
    return WatchedService(figures, "ok" if up else "down", [], lag, listed)


def client(name: str, kind: str, address: str, *samples: str, backbone: str = "h:1", **more: Any) -> WatchedService:
    own = f'client_info{{address="{address}",backbone="{backbone}"}} 1'
    return service(name, kind, own, "client_connected 1", *samples, **more)


def tree(*services: WatchedService) -> dict[str, tuple[str | None, int]]:
    """Return the name of the parent and the level of each node."""
    nodes = describe_topology(services)["nodes"]
    names = {node["id"]: node["name"] for node in nodes}
    return {node["name"]: (names.get(node["parent"]), node["level"]) for node in nodes}


def node(name: str, *services: WatchedService) -> dict[str, Any]:
    (found,) = (one for one in describe_topology(services)["nodes"] if one["name"] == name)
    return dict(found)


def test_clients_of_relays_are_below_the_relays() -> None:
    backbone = service("top", "backbone", listed=clients(row("a:1", "relay"), row("b:1", "journal")))
    relay = client("branch", "relay", "a:1", listed=clients(row("c:1")))
    assert tree(relay, client("kept", "journal", "b:1"), backbone) == {
        "top": (None, 0),
        "branch": ("top", 1),
        "kept": ("top", 1),
        "c:1": ("branch", 2),
    }


def test_node_has_the_figures_of_its_metrics_and_of_its_link() -> None:
    listed = row("b:1", "journal", lag=3, requests=5, retransmitted=6, retransmitting=2)
    backbone = service(
        "top", "backbone", "backbone_sequence 90", "backbone_retransmitted_total 8", listed=clients(listed)
    )
    figures = "client_lost_total 1", "client_repaired_total 9", "client_missing 4", "client_answered_total 11"
    kept = node("kept", backbone, client("kept", "journal", "b:1", *figures, lag=100.0))
    assert {name: kept[name] for name in ("lag", "lost", "repaired", "missing", "resent", "watched")} == {
        "lag": 3,  # The backbone knows it at one moment.
        "lost": 1,
        "repaired": 9,
        "missing": 4,
        "resent": 11,
        "watched": True,
    }
    assert kept["link"] == {"serves": True, "rate": 7.0, "requests": 5, "resent": 6, "queued": 2}
    top = node("top", backbone)
    assert (top["number"], top["resent"], top["link"]) == (90, 8, None)


def test_watched_client_is_of_the_kind_in_the_list() -> None:
    backbone = service("top", "backbone", listed=clients(row("b:1", "publisher")))
    assert node("one", backbone, client("one", "client", "b:1"))["kind"] == "publisher"


@pytest.mark.parametrize("address", ["0.0.0.0:7", "[::]:7", "10.0.0.9:7"])
def test_client_is_recognised_by_its_port_behind_address_translation(address: str) -> None:
    backbone = service("top", "backbone", listed=clients(row("192.0.2.1:7", "journal"), row("192.0.2.1:17", "journal")))
    assert tree(backbone, client("kept", "journal", address))["kept"] == ("top", 1)


def test_client_with_an_ambiguous_port_or_of_another_kind_is_not_recognised() -> None:
    backbone = service("top", "backbone", listed=clients(row("a:7", "journal"), row("b:7", "journal"), row("c:8")))
    found = tree(backbone, client("kept", "journal", "z:7"), client("other", "journal", "z:8"))
    assert found.keys() == {"top", "a:7", "b:7", "c:8", "kept", "other", "h:1"}
    assert found["kept"] == found["other"] == ("h:1", 1)


def test_client_of_another_stream_is_not_recognised() -> None:
    backbone = service("top", "backbone", listed=clients(row("a:7", "journal")))
    kept = client("kept", "journal", "a:7", info='stream="fyrehose://other"')
    assert tree(backbone, kept)["kept"] == ("h:1", 1)


def test_connected_client_beyond_the_list_is_below_the_only_server_with_an_incomplete_list() -> None:
    backbone = service("top", "backbone", listed=clients(row("a:1"), total=10))
    found = describe_topology([backbone, client("kept", "journal", "b:1")])
    assert tree(backbone, client("kept", "journal", "b:1"))["kept"] == ("top", 1)
    assert found["more"] == 8


def test_unconnected_client_has_no_server() -> None:
    lone = service("lone", "client", 'client_info{address="a:1",backbone="h:1"} 1', "client_connected 0")
    gone = client("gone", "client", "b:1", up=False)
    assert tree(lone, gone) == {"lone": (None, 0), "gone": (None, 0)}


def test_server_that_is_not_watched_is_a_node_of_unknown_state() -> None:
    found = node("h:1", client("one", "client", "a:1"), client("two", "client", "b:1"))
    assert (found["kind"], found["state"], found["watched"]) == ("server", "unknown", False)
    assert tree(client("one", "client", "a:1"), client("two", "client", "b:1"))["two"] == ("h:1", 1)


def member(name: str, leads: int, listed: dict[str, Any], *more: str) -> WatchedService:
    info = f'{STREAM},member="{name}"'
    return service(name, "backbone", f"backbone_leading {leads}", *more, info=info, listed=listed)


def test_leader_of_a_group_serves_the_clients_that_all_members_list() -> None:
    both = clients(row("a:1", silent_seconds=0.5)), clients(row("a:1", silent_seconds=0.1))
    members = member("one", 1, both[0]), member("two", 0, both[1]), member("three", 0, clients(), "backbone_witness 1")
    assert tree(*members)["a:1"] == ("one", 1)
    assert node("a:1", *members)["link"]["serves"]
    roles = {one["name"]: (one["role"], one["group"]) for one in describe_topology(members)["nodes"] if one["role"]}
    group = "fyrehose://s"
    assert roles == {"one": ("leads", group), "two": ("stands by", group), "three": ("votes", group)}


def test_listed_client_is_only_one_watched_service() -> None:
    backbone = service("top", "backbone", listed=clients(row("b:1", "journal")))
    found = tree(backbone, client("one", "journal", "b:1"), client("two", "journal", "b:1"))
    assert (found["one"], found["two"]) == (("top", 1), ("h:1", 1))


def test_clients_beyond_the_lists_of_a_group_are_those_of_its_leader() -> None:
    members = [member(name, leads, clients(row("a:1"), total=10)) for name, leads in (("one", 0), ("two", 1))]
    found = describe_topology([*members, client("kept", "journal", "b:1")])
    assert {one["name"]: one["more"] for one in found["nodes"] if one["role"]} == {"one": 0, "two": 8}
    assert tree(*members, client("kept", "journal", "b:1"))["kept"] == ("two", 1)


def test_client_of_a_group_without_a_leader_is_not_served() -> None:
    found = node("a:1", member("one", 0, clients(row("a:1"))))
    assert found["parent"] == "service one"
    assert not found["link"]["serves"]


def test_client_that_changed_its_server_is_below_the_latest_one() -> None:
    old = service("old", "backbone", listed=clients(row("a:1", silent_seconds=3.0)))
    new = service("new", "backbone", listed=clients(row("a:1", silent_seconds=0.2)))
    assert tree(old, new)["a:1"] == ("new", 1)


def test_state_of_a_listed_client_follows_from_its_keepalives_and_the_age_of_the_list() -> None:
    backbone = service(
        "top", "backbone", listed=clients(row("a:1", silent_seconds=0.4), row("b:1", silent_seconds=4.2))
    )
    assert node("a:1", backbone)["state"] == "ok"
    silent = node("b:1", backbone)
    assert (silent["state"], silent["reasons"]) == ("attention", ["silent for 4 s"])
    late = service("top", "backbone", listed=clients(row("a:1", "journal", lag=70_000)))
    assert node("a:1", late)["reasons"] == ["70,000 messages behind"]
    assert node("a:1", service("top", "backbone", listed=clients(row("a:1"), up=False)))["state"] == "unknown"
    gone = service("top", "backbone", listed=clients(row("a:1")), up=False)
    assert node("a:1", gone)["state"] == "unknown"
    assert not node("a:1", gone)["link"]["serves"]


def test_relays_that_list_each_other_are_no_cycle() -> None:
    one = client("one", "relay", "a:1", listed=clients(row("b:1", "relay")))
    two = client("two", "relay", "b:1", listed=clients(row("a:1", "relay"), row("c:1")))
    assert tree(one, two) == {"two": (None, 0), "one": ("two", 1), "c:1": ("two", 1)}
    alone = client("alone", "relay", "a:1", listed=clients(row("a:1", "relay")))
    assert tree(alone) == {"alone": (None, 0)}


def test_nodes_beyond_the_limit_are_counted_at_their_server() -> None:
    many = [row(f"h:{number}", silent_seconds=9.0 if number == 299 else 0.0) for number in range(300)]
    backbone = service("top", "backbone", listed=clients(*many, total=1_000))
    found = describe_topology([backbone])
    assert len(found["nodes"]) == MAX_NODES
    assert found["nodes"][0]["more"] == found["more"] == 1_000 - (MAX_NODES - 1)
    # A client that needs attention is listed.
    assert "h:299" in {one["name"] for one in found["nodes"]}


def test_services_of_other_protocols_and_publishers_without_keepalive_take_no_part() -> None:
    backbone = service("top", "backbone", listed=clients(row(UNLISTED, "publisher"), total=0))
    others = service("tree", "freenet"), service("events", "journal", info='stream="parcels://p"')
    assert tree(backbone, *others) == {"top": (None, 0)}
