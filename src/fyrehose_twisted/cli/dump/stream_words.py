"""Messages of freenet, of parcels, and of the members of a group of backbones, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fyrehose_twisted.cli.dump.description import Description, format_range, message_fields, words
from fyrehose_twisted.consensus import messages as raft
from fyrehose_twisted.freenet.wire.codec import MessageCode
from fyrehose_twisted.freenet.wire.messages import Message as FreenetMessage
from fyrehose_twisted.fyrehose.wire.member_messages import MemberMessage
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.parcels.wire import messages as parcels
from fyrehose_twisted.parcels.wire.payload import WIRE_NAMES
from fyrehose_twisted.wording import pluralize

_FREENET_NAMES = {"".join(word.capitalize() for word in code.name.split("_")): code.name for code in MessageCode}


def describe_freenet(message: FreenetMessage) -> Description:
    """Return a message of freenet in words."""
    fields = message_fields(message)
    key: bytes | None = getattr(message, "key", None)
    if key is not None:
        fields = {"key" if name == "key_size" else name: value for name, value in fields.items()}
        fields["key"] = key.hex()
    return Description(_FREENET_NAMES[type(message).__name__], _format_fields(fields), fields)


def describe_parcel(message: parcels.Message) -> Description:
    """Return a parcel in words."""
    if isinstance(message, parcels.Parcel):
        return _describe_document_parcel(message)
    name, fields = WIRE_NAMES[type(message)], message_fields(message)
    write = _PARCELS.get(type(message))
    return Description(name, _format_fields(fields) if write is None else write(message), fields)


def describe_member_message(message: MemberMessage) -> Description:
    """Return a message between the members of a group of backbones in words."""
    fields = message_fields(message)
    write = _RAFT.get(type(message))
    return Description(type(message).__name__, _format_fields(fields) if write is None else write(message), fields)


def _format_fields(fields: dict[str, Any]) -> str:
    """Return the fields as ``name value``, in order."""
    return words(*(f"{name.replace('_', ' ')} {_format_value(value)}" for name, value in fields.items()))


def _format_value(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list():
            return f"({' '.join(map(_format_value, value))})"
        case dict():
            return f"({_format_fields(value)})"
    return str(value)


def _describe_document_parcel(parcel: parcels.Parcel) -> Description:
    fields: dict[str, Any] = {"is_response": parcel.is_response, "id": parcel.id, "data_size": len(parcel.data)}
    sender = f"of node {parcel.id}"
    if parcel.identity is not None:
        fields["identity"] = _node_fields(parcel.identity)
        text = words(sender, _format_node(parcel.identity))
    elif parcel.neighbours is not None:
        fields["neighbours"] = [_node_fields(node) for node in parcel.neighbours]
        nodes = "; ".join(map(_format_node, parcel.neighbours[:8]))
        text = words(sender, pluralize(len(parcel.neighbours), "neighbour") + (f": {nodes}" if nodes else ""))
    elif parcel.body is not None:
        fields["sequence"] = parcel.body
        text = words(sender, f"sequence {parcel.body}")
    else:
        text = sender
    if parcel.data:
        text = words(text, pluralize(len(parcel.data), "byte") + " of data")
    return Description(parcel.type.value, words(text, "response" if parcel.is_response else ""), fields)


def _node_fields(node: parcels.NodeInfo) -> dict[str, Any]:
    fields = message_fields(node) | {"host": node.host[0], "port": node.host[1]}
    return fields


def _format_node(node: parcels.NodeInfo) -> str:
    ours = "" if node.ours is None else f", version {node.ours.version}"
    return f"{node.name} at {format_address(node.host)} in mode {node.mode.value}{ours}"


def _format_append(message: raft.AppendEntries) -> str:
    count = len(message.entries)
    entries = "heartbeat"
    if count:
        numbers = format_range(message.previous + 1, message.previous + count)
        entries = f"{pluralize(count, 'entry', 'entries')}: {numbers}"
    return f"term {message.term}, {entries}, after {message.previous} of term {message.previous_term}, " + (
        f"commit {message.commit}"
    )


def _format_appended(message: raft.AppendEntriesReply) -> str:
    return f"term {message.term}, {'taken up to' if message.taken else 'rejected, retry after'} {message.index}"


def _format_run(run: parcels.PublisherRun) -> str:
    count = len(run.events)
    numbers = f": {format_range(run.first, run.first + count - 1)}" if count else ""
    expected = "" if run.expect is None else f", if the last event is {run.expect}"
    return f"{run.publisher} epoch {run.epoch}, {pluralize(count, 'event')}{numbers}{expected}"


def _format_published(message: parcels.PublishAck) -> str:
    count = sum(count for _, count in message.sequences)
    numbers = " ".join(format_range(first, first + count - 1) for first, count in message.sequences[:8] if count)
    events = f"{pluralize(count, 'event')} from {message.first}"
    return words(f"{message.publisher} epoch {message.epoch}", events, f"sequence {numbers}" if numbers else "")


def _format_fetched(message: parcels.FetchEventsReply) -> str:
    count = len(message.events)
    if not count:
        return f"no events; the lowest held is {message.first}"
    return f"{pluralize(count, 'event')}: {format_range(message.first, message.first + count - 1)}"


_RAFT: dict[type, Callable[[Any], str]] = {
    raft.AppendEntries: _format_append,
    raft.AppendEntriesReply: _format_appended,
}
_PARCELS: dict[type, Callable[[Any], str]] = {
    **_RAFT,
    parcels.Publish: lambda message: _format_run(message.run),
    parcels.PublishAck: _format_published,
    parcels.FetchEvents: lambda message: format_range(message.first, message.last),
    parcels.FetchEventsReply: _format_fetched,
}
