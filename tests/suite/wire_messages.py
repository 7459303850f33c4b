"""Strategies of all messages of the four protocols, with fields over their whole range."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership
from fyrehose_twisted.freenet.wire import messages as freenet
from fyrehose_twisted.fyrehose.wire import packets as fyrehose
from fyrehose_twisted.hydra.wire import messages as hydra
from fyrehose_twisted.parcels.wire import messages as parcels

_sequences = st.integers(0, fyrehose.MAX_SEQUENCE) | st.integers(0, 300)
_pairs = st.tuples(_sequences, _sequences).map(sorted)
_ports = st.integers(0, 65_535)
_hosts = ["0.0.0.0", "192.0.2.7", "255.255.255.255", "::1", "2001:db8::7"]
_addresses = st.tuples(st.sampled_from(_hosts), _ports)
_of_16 = st.binary(min_size=16, max_size=16)
_macs = st.just(b"") | _of_16
_terms = st.integers(0, 2**64 - 1) | st.integers(0, 9)
_data = st.binary(max_size=40)
_holdings = st.builds(fyrehose.Holding, _sequences, _sequences)

FYREHOSE: tuple[st.SearchStrategy[Any], ...] = (
    st.builds(fyrehose.Deliver, _sequences, _data, st.booleans(), _macs),
    st.builds(fyrehose.Push, _data, st.just(fyrehose.Dialect.V1), st.booleans(), st.booleans()),
    st.builds(fyrehose.Push, _data, st.just(fyrehose.Dialect.V2), st.booleans(), st.booleans(), st.integers(0, 255)),
    st.builds(lambda address, pair: fyrehose.Request(address, *pair), _addresses, _pairs),
    st.builds(lambda address, pair, mac: fyrehose.Forward(address, *pair, mac), _addresses, _pairs, st.booleans()),
    st.builds(fyrehose.Keepalive, _addresses, st.integers(0, 2**48 - 1), _of_16),
    st.builds(lambda port: fyrehose.Keepalive(("192.0.2.7", port), token=b"", dialect=fyrehose.Dialect.V1), _ports),
    st.builds(fyrehose.KeepaliveAck, st.just(b"") | _of_16),
    st.builds(fyrehose.KeepaliveAck, _of_16, _of_16, _of_16),
    st.builds(fyrehose.Holds, _of_16, _sequences, _holdings, _sequences),
    st.builds(fyrehose.Status, _of_16, _sequences, _sequences, st.lists(_holdings, max_size=16).map(tuple)),
    st.builds(lambda token, pair, left: fyrehose.Asked(token, *pair, left), _of_16, _pairs, st.integers(0, 2**32 - 1)),
    st.builds(fyrehose.Leader, _of_16, _terms, _addresses, st.booleans(), st.lists(_addresses, max_size=7).map(tuple)),
    st.builds(fyrehose.Head, _of_16, _terms, _sequences),
    st.builds(fyrehose.Depth, _of_16, st.integers(1, 255)),
    st.builds(fyrehose.Group, _of_16, st.tuples(st.just("239.1.2.3"), st.integers(1, 65_535))),
    st.builds(fyrehose.Beacon, st.integers(0, 2**32 - 1)),
)
"""Packets of fyrehose, by type."""

_ids = st.integers(1, hydra.MAX_ID) | st.integers(1, 99)
_hydra_terms = st.integers(0, hydra.MAX_TERM) | st.integers(0, 99)
_words = st.sampled_from(["x", "irc", "tag-1", "~fe"])
_lines = st.sampled_from([b"PRIVMSG #x :hello  there ", b":nick!user@host JOIN #x", b"@+hydra/n=t1 NOTICE #x :y"])
HYDRA: tuple[st.SearchStrategy[Any], ...] = (
    st.builds(hydra.Ping, st.integers(-(2**31), hydra.MAX_TERM), _words, _ids),
    st.builds(hydra.Pong, _words, _ids, st.integers(0, 2**31), _words | st.just("")),
    st.builds(hydra.Drop, _ids, st.sampled_from(["", "no room left"])),
    st.builds(hydra.Nominate, _hydra_terms, _ids),
    st.builds(hydra.Pledge, _hydra_terms, _ids, _ids),
    st.builds(hydra.Call, _hydra_terms),
    st.builds(hydra.Elect, _hydra_terms, _ids, _ids),
    st.builds(hydra.Knock, _ids, _words | st.just("")),
    st.builds(hydra.Meet, _ids, _ids),
    st.builds(hydra.Welcome, _ids),
    st.builds(hydra.Hello, _ids, _ids),
    st.builds(hydra.Recv, _hydra_terms, _lines),
    st.builds(hydra.Send, _ids, _lines),
    st.builds(hydra.Keepalive),
)
"""Messages of hydra, by type."""

_uids = st.integers(0, freenet.MAX_UID) | st.integers(0, 300)
_packets = st.integers(0, freenet.MAX_PACKET) | st.integers(0, 300)
_seen = st.just(-1) | _packets
_locations = st.floats(0.0, 1.0, exclude_max=True)
_proofs = st.just(b"") | st.binary(min_size=32, max_size=32)
_FREENET_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("node", "boot", "uid"), _uids),
    **dict.fromkeys(("location", "best", "must_beat", "root", "place"), _locations),
    **dict.fromkeys(("last_seen", "after"), _seen),
    **dict.fromkeys(("packet", "next"), _packets),
    "busy": st.none() | _locations,
    "nonce": _of_16,
    "proof": _proofs,
    "key": st.binary(min_size=20, max_size=20),
    "htl": st.integers(0, freenet.MAX_HTL),
    "data": st.binary(max_size=300),
    "reason": st.sampled_from(["", "full", "über"]),
    "wanted": st.booleans(),
}
FREENET = tuple(
    st.builds(kind, **{name: _FREENET_FIELDS[name] for name in kind._fields}) for kind in get_args(freenet.Message)
)
"""Messages of freenet, by type."""

_numbers = st.integers(0, parcels.MAX_SEQUENCE) | st.integers(0, 300)
_small = st.integers(0, 2**40)
_names = st.sampled_from(["a", "node-1", "ü"])
_events = st.lists(st.binary(max_size=300), max_size=3).map(tuple)
_runs = st.builds(parcels.PublisherRun, _names, _numbers, _small, _events, st.none() | _numbers)
_peers = st.tuples(st.sampled_from(["192.0.2.7", "::1"]), _ports)
_members = st.tuples(st.builds(MemberId, _names, _numbers), _peers)
_entries = st.one_of(
    st.builds(LogEntry, _numbers, st.just(EntryKind.DATA), st.lists(_runs, max_size=2).map(tuple)),
    st.builds(
        LogEntry, _numbers, st.just(EntryKind.MEMBERSHIP), st.lists(_members, max_size=2).map(tuple).map(Membership)
    ),
    st.builds(LogEntry, _numbers, st.just(EntryKind.NO_OP), st.none()),
)
_PARCELS_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "nonce": _of_16,
    "proof": _proofs,
    "run": _runs,
    "entries": st.lists(_entries, max_size=2).map(tuple),
    "previous": _small,
    "first": _small,
    "sequences": st.lists(st.tuples(_small, _small), max_size=2).map(tuple),
    "events": st.lists(st.tuples(_names, _numbers, _numbers, st.binary(max_size=8)), max_size=2).map(tuple),
}
_PARCELS_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: _numbers,
    bool: st.booleans(),
    bytes: st.binary(max_size=300),
    str: _names,
    parcels.Mode: st.sampled_from(parcels.Mode),
    parcels.RefusalReason: st.sampled_from(parcels.RefusalReason),
}
_ids_of_nodes = st.integers(0, 65_535)
_extensions = st.builds(parcels.Extension, _ids_of_nodes, _numbers, st.integers(0, 2**32 - 1))
_nodes = st.builds(
    parcels.NodeInfo, _ids_of_nodes, st.sampled_from(parcels.Mode), _names, _peers, st.none() | _extensions
)
_kind = parcels.ParcelType


def _parcels(
    kind: parcels.ParcelType, body: st.SearchStrategy[Any], data: st.SearchStrategy[bytes]
) -> st.SearchStrategy[parcels.Parcel]:
    return st.builds(parcels.Parcel, st.booleans(), st.just(kind), _ids_of_nodes, body, data)


_nothing = st.just(b"")
DOCUMENT_PARCELS: tuple[st.SearchStrategy[Any], ...] = (
    _parcels(_kind.DSC_REQ, _nodes, _nothing),
    _parcels(_kind.DSC_RES, st.lists(_nodes, max_size=4).map(tuple), _nothing),
    _parcels(_kind.SEQ_REQ, st.none(), _nothing),
    _parcels(_kind.SEQ_RES, _numbers, _nothing),
    _parcels(_kind.PROTO_ERROR, st.none(), st.binary(max_size=30)),
)
EXTENSION_PARCELS = tuple(
    st.builds(
        kind,
        **{
            name: _PARCELS_BY_NAME[name] if name in _PARCELS_BY_NAME else _PARCELS_BY_TYPE[hint]
            for name, hint in get_type_hints(kind).items()
        },
    )
    for kind in get_args(parcels.Message)
    if kind is not parcels.Parcel
)
PARCELS = DOCUMENT_PARCELS + EXTENSION_PARCELS
"""Messages of parcels, by type."""
