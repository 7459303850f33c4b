"""``/openapi.json``: OpenAPI description of the HTTP API."""

from __future__ import annotations

from fyrehose_twisted.parcels.client.event_ids import CLUSTER_ID_PATTERN, ID_PATTERN
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.webhooks.callback import MAX_SECRET
from fyrehose_twisted.parcels.web.webhooks.ssrf import MAX_URL, URL_PATTERN
from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE, Mode
from fyrehose_twisted.web.openapi import (
    COUNT,
    FLAG,
    TEXT,
    Schema,
    array_schema,
    description_operation,
    document,
    error_responses,
    get_operation,
    health_operation,
    json_content,
    metrics_operation,
    object_schema,
    query_parameter,
    ref,
    request_body,
    request_header,
    response_headers,
)

NAME_PATTERN = "^[!-~]([ -~]{0,62}[!-~])?$"
"""Schema of headers with 1 to 64 printable characters."""

_SEQUENCE: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_SEQUENCE}
_CLUSTER_ID: Schema = {
    "type": "string",
    "pattern": f"({CLUSTER_ID_PATTERN})|^$",
    "description": "id of the cluster; numbers are unique as long as it stays the same",
}
_CLUSTER_ID_MEMBERS: dict[str, Schema] = {
    "cluster_id": _CLUSTER_ID,
    "founding": {**_CLUSTER_ID, "description": "old name of `cluster_id`", "deprecated": True},
}
_MODE: Schema = {"type": "string", "enum": [mode.value for mode in Mode]}


_EVENT = object_schema(
    {
        "sequence": _SEQUENCE,
        "publisher": TEXT,
        "data": {"type": "string", "contentEncoding": "base64"},
        "json": {"description": "the event, if its bytes are valid JSON"},
    },
    ("data", "json"),
    additionalProperties=False,
    oneOf=[{"required": ["data"]}, {"required": ["json"]}],
)
_MEMBER = object_schema(
    {
        "name": TEXT,
        "incarnation": TEXT,
        "address": TEXT,
        "alive": FLAG,
        "term": {**COUNT, "type": ["integer", "null"]},
        "sequence": {**COUNT, "type": ["integer", "null"], "description": "last event that it reported to have"},
        "lag": {
            **COUNT,
            "type": ["integer", "null"],
            "description": "events of this node that it has not reported",
        },
    }
)
_NEIGHBOUR = object_schema(
    {
        "name": TEXT,
        "id": COUNT,
        "address": TEXT,
        "mode": TEXT,
        "ours": FLAG,
        "votes": FLAG,
        "silent": {"type": "number"},
    }
)
_LETTER = object_schema(
    {"first": _SEQUENCE, "last": _SEQUENCE, "reason": TEXT, "attempts": COUNT, "at": {"type": "number"}}
)
_SCHEMAS = {
    "Event": _EVENT,
    "Health": object_schema({"mode": _MODE, "why": TEXT}),
    "Cluster": object_schema(
        {
            "name": TEXT,
            "id": COUNT,
            "incarnation": TEXT,
            "cluster": TEXT,
            **_CLUSTER_ID_MEMBERS,
            "mode": _MODE,
            "why": TEXT,
            "leader": {"type": ["string", "null"]},
            "term": COUNT,
            "sequence": COUNT,
            "oldest": COUNT,
            "quorum": COUNT,
            "members": array_schema(_MEMBER),
            "neighbours": array_schema(_NEIGHBOUR),
            "counters": {"type": "object", "additionalProperties": {"type": "integer"}},
        }
    ),
    "Callback": object_schema(
        {
            "id": TEXT,
            "url": TEXT,
            "next": COUNT,
            "signed": FLAG,
            "suspended": FLAG,
            "delivered": COUNT,
            "attempts": COUNT,
            "skipped": COUNT,
            "dead": COUNT,
            "last_error": {"type": ["string", "null"]},
            "dead_letters": array_schema(_LETTER),
        }
    ),
    "NewCallback": object_schema(
        {
            "url": {"type": "string", "pattern": URL_PATTERN, "maxLength": MAX_URL},
            "from": _SEQUENCE,
            "secret": {"type": "string", "minLength": 1, "maxLength": MAX_SECRET},
        },
        ("from", "secret"),
        additionalProperties=False,
    ),
    "Reform": object_schema({"reform": TEXT}, additionalProperties=False),
    "Remove": object_schema({"name": TEXT}, additionalProperties=False),
    "Transfer": object_schema({"to": TEXT}, ("to",), additionalProperties=False),
}


def _events(config: WebConfig) -> dict[str, Schema]:
    name = {"type": "string", "pattern": NAME_PATTERN}
    post = {
        "operationId": "publish",
        "summary": "Publish an event; returns its number after the cluster has committed it",
        "parameters": [
            query_parameter(
                "expect",
                "publish only if the last event has this number, 0 if there must be none; otherwise the response is"
                " 409, `sequence-changed`, and `last` is the number of the last event",
                {**_SEQUENCE, "minimum": 0},
            ),
            request_header("Publisher", "publisher of the event; by default, the node", name),
            request_header(
                "Idempotency-Key",
                "makes the request safe to repeat, at any node: the same publisher and key return the same number",
                name,
            ),
        ],
        "requestBody": request_body(
            {
                "application/octet-stream": {"type": "string", "minLength": 1, "maxLength": config.max_body},
                "application/json": {},
            }
        ),
        "responses": {
            "201": json_content(
                "published",
                object_schema({"sequence": _SEQUENCE, **_CLUSTER_ID_MEMBERS}),
                headers=response_headers(Location="the event"),
            ),
            **error_responses(403, 409, 422, 503),
        },
    }
    cluster_id: Schema = {**TEXT, "pattern": CLUSTER_ID_PATTERN}
    get = {
        "operationId": "read",
        "summary": "Read events, or follow them as server-sent events with `Accept: text/event-stream`",
        "description": (
            f"A response has at most {config.page_events:,} events, and about {config.page_bytes:,} bytes of them; a"
            ' `Link` header with `rel="next"` has the URL of the next page. On a stream, the data is an event as in'
            " the list, on one line, and the id is the cluster id, a hyphen and the number. An event named"
            " `skipped`, with `first` and `last`, reports events that are no longer available, and one named"
            " `position` the start of the stream. A stream begins after `Last-Event-ID`, at `from`, or with the next"
            " event; a position beyond the end is answered with 409, `beyond-end`. If `Last-Event-ID` or `cluster_id`"
            " gives the cluster id and the cluster was re-created since, the response is 409, `other-founding`. If the"
            " cluster id is current, a stream waits for its first event."
        ),
        "parameters": [
            query_parameter("from", "first number; by default, the lowest stored", _SEQUENCE),
            query_parameter("to", "last number; by default, the last of the node; not for streams", _SEQUENCE),
            query_parameter("encoding", "`base64`: every event as `data`", {"type": "string", "enum": ["base64"]}),
            query_parameter("cluster_id", "cluster id of the numbers `from` and `to`", cluster_id),
            _linearizable(
                "`1`: the range contains every event that any node acknowledged before the request, or the response is"
                " 503; not for streams",
            ),
            {**query_parameter("founding", "old name of `cluster_id`", cluster_id), "deprecated": True},
            request_header(
                "Last-Event-ID",
                "last id received; a bare number is accepted, but does not identify the cluster",
                {**TEXT, "pattern": ID_PATTERN},
            ),
        ],
        "responses": {
            "200": {
                "description": "the available events",
                "headers": response_headers(Link="URL of the next page"),
                "content": {
                    "application/json": {"schema": array_schema(ref("Event"))},
                    "text/event-stream": {"schema": {**TEXT, "description": "an Event in the data of each message"}},
                },
            },
            **error_responses(409, 410, 503),
        },
    }
    return {"get": get, "post": post}


def _linearizable(description: str) -> Schema:
    return query_parameter("linearizable", description, {"type": "string", "enum": ["0", "1"]})


def _state() -> dict[str, dict[str, Schema]]:
    sequence: Schema = {"description": "number of the last event that it contains", "schema": COUNT}
    cluster_id: Schema = {"description": "cluster that the number belongs to", "schema": _CLUSTER_ID}
    get = {
        "operationId": "state",
        "summary": "Get the application's state that this node holds",
        "parameters": [
            _linearizable(
                "`1`: it contains every event that any node acknowledged before the request, or the response is 503"
            )
        ],
        "responses": {
            "200": {
                "description": "the state, as its application writes it",
                "headers": {"Sequence": sequence, "Cluster-Id": cluster_id},
                "content": {"application/octet-stream": {"schema": {}}},
            },
            **error_responses(503),
        },
    }
    return {"/state": {"get": get}}


def _callbacks() -> dict[str, dict[str, Schema]]:
    id: Schema = {"name": "id", "in": "path", "required": True, "schema": TEXT}
    post = {
        "operationId": "addCallback",
        "summary": "Register a URL to which events are sent by POST, in order, one at a time, at least once",
        "requestBody": request_body({"application/json": ref("NewCallback")}),
        "responses": {
            "201": json_content("registered", ref("Callback"), headers=response_headers(Location="the callback")),
            **error_responses(403, 409, 410, 503),
        },
    }
    listed = {
        "operationId": "listCallbacks",
        "summary": "List callbacks",
        "responses": {"200": json_content("all callbacks", array_schema(ref("Callback"))), **error_responses()},
    }
    get = {
        "operationId": "getCallback",
        "summary": "Get a callback",
        "parameters": [id],
        "responses": {"200": json_content("the callback", ref("Callback")), **error_responses(404)},
    }
    delete = {
        "operationId": "removeCallback",
        "summary": "Remove a callback",
        "parameters": [id],
        "responses": {"204": {"description": "removed"}, **error_responses(403, 404, 503)},
    }
    return {"/callbacks": {"get": listed, "post": post}, "/callbacks/{id}": {"get": get, "delete": delete}}


def _operator() -> dict[str, dict[str, Schema]]:
    post = {
        "operationId": "transfer",
        "summary": "Order another member to take over the leadership from this node",
        "requestBody": request_body({"application/json": ref("Transfer")}),
        "responses": {
            "202": json_content("the order was given", object_schema({"to": TEXT})),
            **error_responses(403, 409),
        },
    }
    remove = {
        "operationId": "remove",
        "summary": "Remove a member, which leaves and stops if it can be reached",
        "requestBody": request_body({"application/json": ref("Remove")}),
        "responses": {
            "202": json_content("it is removed", object_schema({"removed": TEXT})),
            **error_responses(403, 409),
        },
    }
    head = {
        "operationId": "backup",
        "summary": "Get all but the events of a backup, for `fyrehose parcels backup`",
        "responses": {"200": _cbor("head of the backup"), **error_responses(503)},
    }
    events = {
        "operationId": "backupEvents",
        "summary": "Get events of a backup, as many as one response takes",
        "parameters": [{**query_parameter("from", "number of the first event", _SEQUENCE), "required": True}],
        "responses": {"200": _cbor("consecutive events"), **error_responses(410)},
    }
    return {
        "/cluster/transfer": {"post": post},
        "/cluster/remove": {"post": remove},
        "/backup": {"get": head},
        "/backup/events": {"get": events},
    }


def _cbor(description: str) -> Schema:
    return {"description": description, "content": {"application/cbor": {"schema": {}}}}


def _others() -> dict[str, dict[str, Schema]]:
    reform = {
        "operationId": "reform",
        "summary": "Force a new cluster with this node alone, after its quorum is lost for good",
        "description": "Last resort: events that only other nodes have are lost.",
        "requestBody": request_body({"application/json": ref("Reform")}),
        "responses": {
            "202": json_content("the new cluster", object_schema({"mode": _MODE})),
            **error_responses(403, 409),
        },
    }
    return {
        "/": {"get": get_operation("links", "List the paths", {"type": "object"})},
        "/openapi.json": {"get": description_operation()},
        "/cluster": {"get": get_operation("cluster", "Status of the cluster, as seen by this node", ref("Cluster"))},
        "/cluster/reform": {"post": reform},
        "/health": {"get": health_operation("Whether this node can order events", "it can", "it cannot")},
        "/metrics": {"get": metrics_operation()},
    }


def describe_openapi(config: WebConfig, *, callbacks: bool, operator: bool, state: bool, token: bool) -> Schema:
    """Return the OpenAPI description.

    :param callbacks: whether the API includes ``/callbacks``.
    :param operator: whether it includes ``/cluster/transfer`` and ``/backup``.
    :param state: whether it includes ``/state``.
    :param token: whether requests need a token.
    """
    paths = {
        "/events": _events(config),
        **(_callbacks() if callbacks else {}),
        **(_state() if state else {}),
        **(_operator() if operator else {}),
        **_others(),
    }
    about = "A node of a cluster that orders events."
    return document("fyrehose parcels", about, paths, _SCHEMAS, token=token, always=(403, 421))
