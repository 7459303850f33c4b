from __future__ import annotations

import json
from collections.abc import Iterable
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.experiments.report.tree_state import TreeState

Entry = dict[str, Any]

DATA = Path(__file__).parent / "data"
KEY, OTHER = bytes(range(20)), bytes(range(100, 120))
LOCATIONS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
NETWORK: Entry = {
    "t": 0.0,
    "what": "network",
    "seed": 7,
    "locations": LOCATIONS,
    "links": [[0, 1], [2, 1]],
    "policy": {"max_htl": 10},
}


def read(*entries: Entry, network: Entry = NETWORK) -> Recording:
    return Recording.read(json.dumps(entry) + "\n" for entry in (network, *entries))


def change(t: float, what: str, node: int, key: bytes = KEY, **more: Any) -> Entry:
    return {"t": t, "what": what, "key": key.hex(), "node": node, **more}


def attached(t: float, node: int, parent: int, key: bytes = KEY) -> Entry:
    return change(t, "attached", node, key, parent=parent)


def moment(*entries: Entry, t: float = 100.0) -> TreeState:
    return read(*entries).state_at(KEY, t)


def chain(length: int = 4) -> list[Entry]:
    """Return changes of a chain with root 0, node 1 below it, and so on; node 1 and the last one subscribe."""
    links = [attached(1.0, node, node - 1) for node in range(1, length)]
    return [
        change(0.5, "subscribed", 1),
        change(0.5, "subscribed", length - 1),
        change(0.9, "root", 0),
        *links,
    ]


def test_a_recording_has_the_contents_of_the_first_line() -> None:
    recording = read(change(2.5, "root", 3))
    assert recording.seed == 7
    assert recording.policy == {"max_htl": 10}
    assert recording.locations == tuple(LOCATIONS)
    assert recording.links == {(0, 1), (1, 2)}
    assert recording.finish == 2.5
    assert list(recording.streams) == [KEY]


def test_a_seed_and_a_policy_may_be_missing() -> None:
    network = {name: value for name, value in NETWORK.items() if name not in ("seed", "policy")}
    recording = read(network=network)
    assert (recording.seed, recording.policy, recording.streams) == (None, {}, {})


def test_empty_lines_are_skipped_but_numbered() -> None:
    with pytest.raises(ConfigurationError, match=r"^line 4 of the trace: "):
        Recording.read(["\n", json.dumps(NETWORK), "  \n", "{}"])


def test_a_state_includes_the_changes_at_its_time() -> None:
    recording = read(*chain(3), attached(2.0, 2, 0))
    assert recording.state_at(KEY, 0.4).members == set()
    assert recording.state_at(KEY, 0.9).roots == {0}
    assert recording.state_at(KEY, 1.999).parents == {1: 0, 2: 1}
    assert recording.state_at(KEY, 2.0).parents == {1: 0, 2: 0}


def test_a_complete_tree_has_no_unrooted_members() -> None:
    now = moment(*chain(4))
    assert now.members == {0, 1, 2, 3}
    assert now.depths == {0: 0, 1: 1, 2: 2, 3: 3}
    assert now.trees == dict.fromkeys(range(4), 0)
    assert now.unrooted == set()
    assert now.reach == 1.0


def test_the_subtree_of_a_detached_node_is_unrooted() -> None:
    now = moment(*chain(4), change(2.0, "detached", 2))
    assert now.detached == {2}
    assert now.parents == {1: 0, 3: 2}
    assert now.unrooted == {2, 3}
    assert now.depths == {0: 0, 1: 1}
    assert now.reach == 0.5


def test_a_node_with_a_new_parent_or_a_root_is_not_detached() -> None:
    lost = [*chain(4), change(2.0, "detached", 2)]
    assert moment(*lost, attached(3.0, 2, 0)).unrooted == set()
    now = moment(*lost, change(3.0, "root", 2))
    assert (now.detached, now.roots, now.reach) == (set(), {0, 2}, 0.5)
    assert now.trees == {0: 0, 1: 0, 2: 2, 3: 2}


def test_a_node_that_is_down_is_not_a_member_but_stays_a_parent_until_its_children_notice() -> None:
    now = moment(*chain(4), {"t": 2.0, "what": "down", "node": 1})
    assert now.down == {1}
    assert now.members == {0, 2, 3}
    assert now.parents == {2: 1, 3: 2}
    assert now.unrooted == {2, 3}
    assert now.subscribers == {1, 3}
    assert now.reach == 0.0


def test_subscribers_that_are_down_do_not_count() -> None:
    now = moment(*chain(4), {"t": 2.0, "what": "down", "node": 3})
    assert now.reach == 1.0


def test_a_node_that_comes_up_has_no_streams_unless_it_kept_them() -> None:
    cut = [*chain(4), {"t": 2.0, "what": "down", "node": 1}]
    assert moment(*cut, {"t": 3.0, "what": "up", "node": 1}).parents == {2: 1, 3: 2}
    kept = moment(*cut, {"t": 3.0, "what": "up", "node": 1, "kept": True})
    assert kept.parents == {1: 0, 2: 1, 3: 2}
    assert kept.down == set()
    detached = moment(*chain(4), change(1.5, "detached", 2), {"t": 2.0, "what": "down", "node": 2},
                      {"t": 3.0, "what": "up", "node": 2, "kept": True})  # fmt: skip
    assert detached.detached == {2}
    root = moment(*chain(4), {"t": 2.0, "what": "down", "node": 0}, {"t": 3.0, "what": "up", "node": 0, "kept": True})
    assert root.roots == {0}


def test_a_second_death_discards_the_streams_kept_by_the_first() -> None:
    now = moment(*chain(4), *({"t": t, "what": what, "node": 1, **more} for t, what, more in (
        (2.0, "down", {}), (3.0, "up", {}), (4.0, "down", {}), (5.0, "up", {"kept": True}),
    )))  # fmt: skip
    assert now.parents == {2: 1, 3: 2}


def test_an_up_change_of_a_running_node_restores_nothing() -> None:
    back = {"t": 3.0, "what": "up", "node": 1, "kept": True}
    now = moment(*chain(4), {"t": 2.0, "what": "down", "node": 1}, back, change(3.0, "dropped", 1), back)
    assert now.parents == {2: 1, 3: 2}


def test_a_dropped_or_unsubscribed_node_is_removed() -> None:
    now = moment(*chain(4), change(2.0, "unsubscribed", 3), change(2.0, "dropped", 3))
    assert now.parents == {1: 0, 2: 1}
    assert now.subscribers == {1}


def test_a_cycle_reaches_no_root() -> None:
    now = moment(*chain(5), attached(2.0, 1, 3))
    assert now.unrooted == {1, 2, 3, 4}
    assert now.depths == {0: 0}


def test_reach_is_that_of_the_tree_with_the_most_subscribers() -> None:
    now = moment(
        *(change(0.1, "subscribed", node) for node in (1, 2, 4)),
        *(change(0.2, "root", node) for node in (0, 3)),
        attached(0.3, 1, 3),
        attached(0.3, 2, 0),
        attached(0.3, 4, 0),
        attached(0.3, 5, 3),
    )
    assert now.reach == 2 / 3


def test_without_subscribers_there_is_no_reach() -> None:
    assert isnan(moment(change(0.5, "root", 0)).reach)


def test_streams_are_independent_and_the_network_is_shared() -> None:
    recording = read(
        change(0.5, "root", 0),
        change(0.6, "root", 1, OTHER),
        {"t": 1.0, "what": "moved", "node": 2, "location": 0.95},
        {"t": 1.0, "what": "linked", "a": 5, "b": 3},
        {"t": 1.0, "what": "unlinked", "a": 1, "b": 0},
    )
    for key, root in ((KEY, 0), (OTHER, 1)):
        now = recording.state_at(key, 1.0)
        assert now.roots == {root}
        assert now.locations == (0.1, 0.2, 0.95, 0.4, 0.5, 0.6)
        assert now.links == {(1, 2), (3, 5)}
    assert recording.state_at(KEY, 0.9).locations == tuple(LOCATIONS)


def test_a_key_is_chosen_by_its_first_digits() -> None:
    recording = read(change(0.5, "root", 0), change(0.6, "root", 1, OTHER))
    assert recording.key("0001") == KEY
    assert recording.key(OTHER.hex().upper()) == OTHER
    with pytest.raises(ConfigurationError, match=r"2 keys begin with ''; .*000102030405, 6465666768"):
        recording.key()
    with pytest.raises(ConfigurationError, match=r"no key begins with 'ff'; there are 000102030405, 6465666768"):
        recording.key("ff")
    assert read(change(0.5, "root", 0)).key() == KEY
    with pytest.raises(ConfigurationError, match="no streams"):
        read().key()


def test_an_unknown_stream_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigurationError, match=f"no stream with key {OTHER.hex()}"):
        read(change(0.5, "root", 0)).state_at(OTHER, 1.0)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("3", "not an object"),
        ("[" * 100_000, "recursion|Stack overflow"),
        ('{"t": 1}', "what is missing"),
        ('{"t": 1, "what": "gone"}', "what is 'gone'; after the first line it is one of attached, root,"),
        ('{"t": 1, "what": "network"}', "what is 'network'"),
        ('{"t": 0.5, "what": "down", "node": 1}', "t is 0.5, but the previous line has 1.0"),
        ('{"t": -1, "what": "down", "node": 1}', "t is -1, not a time"),
        ('{"t": NaN, "what": "down", "node": 1}', "t is nan, not a time"),
        ('{"t": true, "what": "down", "node": 1}', "t is True, not a time"),
        ('{"t": 1' + "0" * 5000 + ', "what": "down", "node": 1}', "digits"),
        ('{"what": "down", "node": 1}', "t is missing"),
        ('{"t": 1, "what": "down", "node": 6}', "node is 6; the nodes are 0 to 5"),
        ('{"t": 1, "what": "down", "node": -1}', "node is -1"),
        ('{"t": 1, "what": "down", "node": 1.0}', "node is 1.0"),
        ('{"t": 1, "what": "down"}', "node is missing"),
        ('{"t": 1, "what": "up", "node": 1, "kept": 1}', "kept is 1"),
        ('{"t": 1, "what": "moved", "node": 1, "location": 1.0}', r"location 1.0: it goes from 0 up to"),
        ('{"t": 1, "what": "moved", "node": 1}', "location missing"),
        ('{"t": 1, "what": "linked", "a": 1, "b": 1}', "node 1 is linked to itself"),
        ('{"t": 1, "what": "linked", "a": 1}', "b is missing"),
        (json.dumps(change(1, "root", 0, key=b"short")), "key is '73686f7274', not 40 hexadecimal digits"),
        (json.dumps({**change(1, "root", 0), "key": KEY.hex().upper()}), "lower case"),
        (json.dumps({**change(1, "root", 0), "key": " " * 80}), "key is .*[.]{3}, not 40"),
        (json.dumps(change(1, "attached", 0)), "parent is missing"),
        (json.dumps(attached(1, 0, 0)), "node 0 is its own parent"),
        (json.dumps(attached(1, 5, 0)), "node 5 is attached, but has been down since 1.0 s"),
        (json.dumps(change(1, "root", 5)), "node 5 is root, but has been down"),
        (json.dumps(change(1, "published", 0)), "number is missing"),
        (json.dumps(change(1, "delivered", 0, number=2**63)), "number is 9223372036854775808, not a packet number"),
    ],
)
def test_a_malformed_line_is_named_with_what_is_wrong(line: str, problem: str) -> None:
    down = json.dumps({"t": 1.0, "what": "down", "node": 5})
    with pytest.raises(ConfigurationError, match=rf"^line 3 of the trace: .*{problem}"):
        Recording.read([json.dumps(NETWORK), down, line])


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"what": "root"}, "what is 'root': the first line must describe the network"),
        ({"t": None}, "t is missing"),
        ({"locations": []}, "locations is not a list"),
        ({"locations": [0.5, 1.0]}, "location 1.0"),
        ({"locations": ["0.5"]}, "location '0.5'"),
        ({"links": None}, "links is not a list of pairs"),
        ({"links": [[0, 1, 2]]}, "links is not a list of pairs"),
        ({"links": [[0, 6]]}, "b is 6; the nodes are 0 to 5"),
        ({"links": [[2, 2]]}, "node 2 is linked to itself"),
        ({"seed": "7"}, "seed is '7'"),
        ({"policy": []}, r"policy is \[\]"),
    ],
)
def test_a_malformed_first_line_is_named_too(more: Entry, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^line 1 of the trace: {problem}"):
        read(network={**NETWORK, **more})


@pytest.mark.parametrize("lines", [[], ["", " \n"]])
def test_an_empty_trace_is_an_error(lines: Iterable[str]) -> None:
    with pytest.raises(ConfigurationError, match="empty"):
        Recording.read(lines)


def test_late_changes_of_a_node_that_is_down_are_accepted() -> None:
    now = moment(
        *chain(4),
        {"t": 2.0, "what": "down", "node": 3},
        change(2.0, "dropped", 3),
        change(2.0, "unsubscribed", 3),
    )
    assert (now.parents, now.subscribers) == ({1: 0, 2: 1}, {1})


def test_the_stored_recording_breaks_and_heals() -> None:
    recording = Recording.read((DATA / "tree.jsonl").read_text("ascii").splitlines())
    key = next(iter(recording.streams))
    assert len(recording.streams) == 2
    before, broken, healed = (recording.state_at(key, t) for t in (39.0, 43.0, 109.0))
    assert (len(before.roots), before.reach, before.unrooted) == (1, 1.0, set())
    assert broken.unrooted == broken.members
    assert broken.reach == 0.0
    assert (len(healed.roots), healed.reach, healed.unrooted) == (1, 1.0, set())
