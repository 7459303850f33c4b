"""Health rules of services, journals and clusters."""

from __future__ import annotations

from typing import Any

import pytest

from fyrehose_twisted.query.monitoring.clusters import assess_cluster, clusters
from fyrehose_twisted.query.monitoring.figures import ServiceFigures, durable_journals, kind_of, read_figures
from fyrehose_twisted.query.monitoring.findings import ATTENTION, DOWN, HealthFinding
from fyrehose_twisted.query.monitoring.health_rules import (
    MAX_LAG,
    assess_service,
    assess_stream,
    measure_lag,
    newest_sequences,
)
from fyrehose_twisted.query.monitoring.scraper import ServiceScrape, parse_metrics
from fyrehose_twisted.query.monitoring.trends import Trends

START = 1_700_000_000.0
STREAM = "fyrehose://default"


def seen(*lines: str, name: str = "one", now: float = START, **more: Any) -> ServiceScrape:
    page = "".join(f"fyrehose_{line}\n" for line in lines)
    known = ServiceScrape(name, True, "", now, now, 0, parse_metrics(page.encode()))
    return known._replace(**more)


def read(*lines: str, trends: Trends | None = None, now: float = START, **more: Any) -> ServiceFigures:
    return read_figures(seen(*lines, now=now, **more), Trends() if trends is None else trends, now)


def judged(one: ServiceFigures, newest: Any = None, least_free: int = 2**30) -> dict[str, HealthFinding]:
    return {found.kind: found for found in assess_service(one, newest or {}, least_free)}


def backbone(sequence: int = 100, rate: int = 0, **more: Any) -> ServiceFigures:
    """Return a backbone that published ``rate`` messages a second in the last five seconds."""
    trends = Trends()
    info = f'info{{service="backbone",stream="{STREAM}"}} 1'
    for back in (5, 0):
        published = f"backbone_published_total {sequence - rate * back}"
        one = read(info, f"backbone_sequence {sequence}", published, trends=trends, now=START - back, **more)
    return one


HEALTHY = 'info{service="backbone"} 1', "backbone_journals 3"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (['info{service="journal"} 1', "client_lost_total 0"], "journal"),
        (["client_lost_total 0"], "client"),
        (['info{service="news"} 1', "backbone_sequence 1"], "backbone"),
        (["unheard_of 1"], "other"),
        ([], "other"),
    ],
)
def test_kind_of_a_service_is_derived_from_its_metrics(lines: list[str], kind: str) -> None:
    assert kind_of(seen(*lines).metrics) == kind


@pytest.mark.parametrize(
    ("lines", "journals"),
    [
        (["backbone_journals 3", "backbone_durable_journals 1"], 1),
        (["backbone_journals 3", "backbone_durable_journals 0"], 0),
        (["backbone_journals 3"], 3),
        ([], None),
    ],
)
def test_durable_journals_are_counted_or_all_journals_for_an_older_backbone(
    lines: list[str], journals: float | None
) -> None:
    assert durable_journals(seen(*lines).metrics) == journals


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["backbone_journals 3", "backbone_durable_journals 1"], "only one durable journal"),
        (["backbone_journals 3", "backbone_durable_journals 0"], "no durable journal"),
        (["backbone_journals 1"], "only one durable journal"),
    ],
)
def test_too_few_durable_journals_need_attention(lines: list[str], text: str) -> None:
    found = judged(read('info{service="backbone"} 1', *lines))
    assert (found["journals"].level, found["journals"].text) == (ATTENTION, text)


def test_healthy_service_has_no_findings() -> None:
    assert judged(read(*HEALTHY)) == {}


def test_unresponsive_service_is_down_and_one_missed_scrape_needs_attention() -> None:
    assert judged(read(*HEALTHY, up=False, why="refused", missed=3))["down"] == HealthFinding(
        "one", DOWN, "down", "is down: refused"
    )
    assert judged(read(*HEALTHY, why="closed", missed=1))["scrape"].level == ATTENTION
    # Nothing is known of a service that was never scraped.
    assert judged(read(up=False, at=0.0, heard_at=0.0)) == {}


def test_only_drops_of_the_last_five_minutes_need_attention() -> None:
    trends = Trends()
    dropped = 'backbone_dropped_total{reason="token"} %d', 'backbone_dropped_total{reason="held_already"} %d'

    def at(second: int, token: int, held: int) -> ServiceFigures:
        lines = dropped[0] % token, dropped[1] % held
        return read(*HEALTHY, *lines, trends=trends, now=START + second)

    assert judged(at(0, 1_000, 1_000)) == {}
    # Normal drops are shown, but make no finding.
    one = at(10, 1_000, 1_005)
    assert (judged(one), one.recent["backbone_dropped_total"]) == ({}, {"held_already": 5})
    assert judged(at(15, 1_001, 1_005))["backbone_dropped_total"].text == "1 packet dropped in 5 min (token)"
    one = at(20, 1_007, 1_005)
    assert judged(one)["backbone_dropped_total"].text == "7 packets dropped in 5 min (token)"
    for second in range(30, 340, 10):
        one = at(second, 1_007, 1_005)
    assert (judged(one), one.recent) == ({}, {})


def test_drops_of_a_new_reason_count_from_zero() -> None:
    trends = Trends()
    read(*HEALTHY, trends=trends)
    one = read(*HEALTHY, 'backbone_dropped_total{reason="token"} 9', trends=trends, now=START + 2)
    assert one.recent == {"backbone_dropped_total": {"token": 9}}


def test_losses_before_the_first_scrape_need_attention_for_an_hour() -> None:
    trends = Trends()
    lines = 'info{service="client"} 1', "client_connected 1", "client_lost_total 6609"
    assert judged(read(*lines, trends=trends))["lost"].text == "6,609 messages lost for good"
    for minute in range(1, 62):
        one = read(*lines, trends=trends, now=START + 60 * minute)
    assert judged(one) == {}


def test_journal_a_million_messages_behind_needs_attention() -> None:
    journal = read('info{service="journal"} 1', f'journal_next{{stream="{STREAM}"}} 1000001', "client_connected 1")
    newest = newest_sequences([backbone(2_000_000)], [])
    assert measure_lag(journal, newest) == (1_000_000, MAX_LAG)
    assert judged(journal, newest)["behind"].text == "1,000,000 messages behind"
    assert "behind" not in judged(journal, newest_sequences([backbone(1_000_000 + MAX_LAG)], []))


def test_time_between_two_scrapes_does_not_count_as_lag() -> None:
    # At 500,000 messages a second, scrapes 2 s apart differ by a million.
    journal = read('info{service="journal"} 1', f'journal_next{{stream="{STREAM}"}} 9000001', "client_connected 1")
    assert "behind" not in judged(journal, newest_sequences([backbone(10_000_000, rate=500_000)], []))


def test_lag_of_a_client_is_measured_against_the_only_stream() -> None:
    client = read('info{service="client"} 1', "client_connected 1", "client_sequence 40")
    assert measure_lag(client, newest_sequences([backbone(100)], [])) == (60, MAX_LAG)
    assert measure_lag(client, {"fyrehose://a": (1, 0), "fyrehose://b": (1, 0)}) is None
    assert measure_lag(client, {}) is None


def test_lag_of_a_client_is_measured_against_its_named_stream() -> None:
    client = read('info{service="client",stream="fyrehose://b"} 1', "client_connected 1", "client_sequence 40")
    assert measure_lag(client, {"fyrehose://a": (100, 0), "fyrehose://b": (70, 0)}) == (30, MAX_LAG)


def stream(**more: Any) -> dict[str, Any]:
    epoch = {"epoch": 0, "first": 1, "next": 101, "last": 100, "records": 100, "lost": 0, "missing": 0}
    told = {"stream": STREAM, "problem": "", "damaged": 0, "lost_lately": 0, "behind": 0.0, "epochs": [epoch]}
    return told | more


@pytest.mark.parametrize(
    ("more", "what", "level"),
    [
        ({"problem": "it is gone"}, "problem", DOWN),
        ({"damaged": 2}, "damaged", ATTENTION),
        ({"lost_lately": 6_609}, "lost", ATTENTION),
        ({"behind": 1_000_000.0}, "behind", ATTENTION),
        ({"epochs": [stream()["epochs"][0] | {"missing": 5}]}, "missing", ATTENTION),
    ],
)
def test_journal_of_the_directory_with_a_problem_has_a_finding(more: dict[str, Any], what: str, level: str) -> None:
    newest = newest_sequences([], [stream()])
    assert newest == {STREAM: (100, 0.0)}
    assert list(assess_stream(stream(), newest)) == []
    (found,) = assess_stream(stream(**more), newest)
    assert (found.subject, found.kind, found.level) == (STREAM, what, level)


@pytest.mark.parametrize(
    ("lines", "what", "level"),
    [
        (['info{service="client"} 1', "client_connected 0"], "connected", ATTENTION),
        (['info{service="client"} 1', "client_missing 3"], "missing", ATTENTION),
        (['info{service="journal"} 1', 'journal_damaged_segments{stream="a"} 1'], "damaged", ATTENTION),
        (['info{service="journal"} 1', 'journal_free_bytes{stream="a"} 1000'], "disk", ATTENTION),
        (['info{service="frontend"} 1', "frontend_backbone 0"], "backbone", DOWN),
        (['info{service="freenet"} 1', "freenet_neighbours 0"], "neighbours", ATTENTION),
        (['info{service="freenet"} 1', 'freenet_streams{phase="searching"} 2'], "unsettled", ATTENTION),
        (['info{service="hydra"} 1', "hydra_leader_known 0"], "leader", ATTENTION),
        (['info{service="parcels"} 1', 'parcels_mode{mode="Hlt"} 1'], "mode", ATTENTION),
        (['info{service="query"} 1', "query_problems 1"], "problems", ATTENTION),
    ],
)
def test_service_with_a_problem_has_a_finding(lines: list[str], what: str, level: str) -> None:
    found = judged(read(*lines))
    assert {name: one.level for name, one in found.items()} == {what: level}


def parcels(name: str, alive: int, members: int, quorum: int, leader: str = "a", **more: Any) -> ServiceFigures:
    lines = [
        'info{service="parcels",cluster="c"} 1',
        f'parcels_members{{alive="true"}} {alive}',
        f'parcels_members{{alive="false"}} {members - alive}',
        f"parcels_quorum {quorum}",
    ]
    lines += [f'parcels_leader{{leader="{leader}"}} 1'] * bool(leader)
    return read(*lines, name=name, **more)


def test_cluster_reports_how_many_more_nodes_may_fail() -> None:
    (cluster,) = clusters([parcels("a", 5, 5, 3), parcels("b", 5, 5, 3)])
    assert (cluster.title, cluster.alive, cluster.may_fail, cluster.leaders) == ("parcels c", 5, 2, ("a",))
    assert list(assess_cluster(cluster)) == []


def test_cluster_with_dead_members_needs_attention_and_is_down_without_a_quorum() -> None:
    (cluster,) = clusters([parcels("a", 3, 5, 3), parcels("b", 1, 5, 3)])
    assert [(one.level, one.text) for one in assess_cluster(cluster)] == [
        (ATTENTION, "3 of 5 members are alive; 0 more may fail")
    ]
    (cluster,) = clusters([parcels("a", 2, 5, 3, leader="")])
    assert {one.kind: one.level for one in assess_cluster(cluster)} == {"quorum": DOWN, "leader": DOWN}


def test_cluster_that_removed_dead_nodes_needs_attention_until_more_nodes_may_fail() -> None:
    gone = parcels("c", 2, 3, 2, up=False, missed=3)
    (cluster,) = clusters([parcels("a", 2, 2, 2), parcels("b", 2, 2, 2), gone])
    assert [(one.level, one.text) for one in assess_cluster(cluster)] == [(ATTENTION, "no further node may fail")]
    (cluster,) = clusters([parcels("a", 2, 2, 2), parcels("b", 2, 2, 2)])
    assert list(assess_cluster(cluster)) == []


def test_nodes_with_different_leaders_need_attention() -> None:
    (cluster,) = clusters([parcels("a", 3, 3, 2), parcels("b", 3, 3, 2, leader="b")])
    assert [one.kind for one in assess_cluster(cluster)] == ["leaders"]


def test_cluster_is_down_when_none_of_its_nodes_answers() -> None:
    (cluster,) = clusters([parcels("a", 3, 3, 2, up=False, missed=3)])
    assert [(one.kind, one.level) for one in assess_cluster(cluster)] == [("no-node", DOWN)]


def group_member(name: str, connected: int, leader: str = "a", **more: Any) -> ServiceFigures:
    lines = [
        f'info{{service="backbone",stream="fyrehose://ticks",member="{name}"}} 1',
        f'backbone_members{{connected="true"}} {connected}',
        f'backbone_members{{connected="false"}} {3 - connected}',
        "backbone_quorum 2",
    ]
    lines += [f'backbone_leader{{leader="{leader}"}} 1'] * bool(leader)
    return read(*lines, name=name, **more)


def test_group_of_backbones_is_a_cluster_and_a_single_backbone_is_none() -> None:
    single = read('info{service="backbone",stream="fyrehose://ticks"} 1', name="single")
    (group,) = clusters([group_member("a", 3), group_member("b", 3), single])
    assert (group.title, group.watched, group.may_fail) == ("backbone fyrehose://ticks", 2, 1)
    assert group.leaders == ("a",)
    assert list(assess_cluster(group)) == []


def test_group_of_backbones_with_a_lost_member_needs_attention() -> None:
    (group,) = clusters([group_member("a", 2), group_member("b", 2), group_member("c", 3, up=False, missed=3)])
    assert [(one.level, one.text) for one in assess_cluster(group)] == [
        (ATTENTION, "2 of 3 members are alive; 0 more may fail")
    ]
    (group,) = clusters([group_member("a", 1, leader="")])
    assert {one.kind: one.level for one in assess_cluster(group)} == {"quorum": DOWN, "leader": DOWN}


def test_witness_needs_no_journals() -> None:
    assert "journals" in judged(read('info{service="backbone"} 1', "backbone_durable_journals 0"))
    witness = read('info{service="backbone"} 1', "backbone_durable_journals 0", "backbone_witness 1")
    assert "journals" not in judged(witness)


@pytest.mark.parametrize(("quorum", "may_fail"), [("hydra_quorum 2", 1), ("hydra_links 2", None)])
def test_hydra_network_reports_its_nodes_and_an_older_one_no_quorum(quorum: str, may_fail: int | None) -> None:
    node = read('info{service="hydra",network="n"} 1', "hydra_nodes 3", quorum, 'hydra_leader{leader="a"} 1')
    (cluster,) = clusters([node])
    assert (cluster.title, cluster.members, cluster.may_fail) == ("hydra n", 3, may_fail)
    assert list(assess_cluster(cluster)) == []
