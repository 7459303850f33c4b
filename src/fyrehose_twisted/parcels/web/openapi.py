"""``/openapi.json``: the description of the site, for people and for programs that write clients."""

from __future__ import annotations

from typing import Any

from fyrehose_twisted.parcels.messages import MAX_SEQUENCE, Mode
from fyrehose_twisted.parcels.web.callback import MAX_SECRET
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.targets import MAX_URL, URL_PATTERN

Schema = dict[str, Any]

NAME_PATTERN = "^[!-~]([ -~]{0,62}[!-~])?$"
"""Headers of 1 to 64 printable characters."""

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_SEQUENCE: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_SEQUENCE}
_MODE: Schema = {"type": "string", "enum": [mode.value for mode in Mode]}


def _object(members: dict[str, Schema], optional: tuple[str, ...] = (), **more: Any) -> Schema:
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required, **more}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_EVENT = _object(
    {
        "sequence": _SEQUENCE,
        "publisher": _TEXT,
        "data": {"type": "string", "contentEncoding": "base64"},
        "json": {"description": "the event itself, if its bytes are a JSON text"},
    },
    ("data", "json"),
    additionalProperties=False,
    oneOf=[{"required": ["data"]}, {"required": ["json"]}],
)
_MEMBER = _object({"name": _TEXT, "incarnation": _TEXT, "address": _TEXT, "alive": _FLAG})
_NEIGHBOUR = _object(
    {
        "name": _TEXT,
        "id": _COUNT,
        "address": _TEXT,
        "mode": _TEXT,
        "ours": _FLAG,
        "votes": _FLAG,
        "silent": {"type": "number"},
    }
)
_LETTER = _object(
    {"first": _SEQUENCE, "last": _SEQUENCE, "reason": _TEXT, "attempts": _COUNT, "at": {"type": "number"}}
)
_SCHEMAS = {
    "Error": _object({"error": _TEXT, "message": _TEXT}),
    "Event": _EVENT,
    "Health": _object({"mode": _MODE, "why": _TEXT}),
    "Cluster": _object(
        {
            "name": _TEXT,
            "id": _COUNT,
            "incarnation": _TEXT,
            "cluster": _TEXT,
            "mode": _MODE,
            "why": _TEXT,
            "leader": {"type": ["string", "null"]},
            "term": _COUNT,
            "sequence": _COUNT,
            "oldest": _COUNT,
            "quorum": _COUNT,
            "members": _list(_MEMBER),
            "neighbours": _list(_NEIGHBOUR),
            "counters": {"type": "object", "additionalProperties": {"type": "integer"}},
        }
    ),
    "Callback": _object(
        {
            "id": _TEXT,
            "url": _TEXT,
            "next": _COUNT,
            "signed": _FLAG,
            "suspended": _FLAG,
            "delivered": _COUNT,
            "attempts": _COUNT,
            "skipped": _COUNT,
            "dead": _COUNT,
            "last_error": {"type": ["string", "null"]},
            "dead_letters": _list(_LETTER),
        }
    ),
    "NewCallback": _object(
        {
            "url": {"type": "string", "pattern": URL_PATTERN, "maxLength": MAX_URL},
            "from": _SEQUENCE,
            "secret": {"type": "string", "minLength": 1, "maxLength": MAX_SECRET},
        },
        ("from", "secret"),
        additionalProperties=False,
    ),
    "Reform": _object({"reform": _TEXT}, additionalProperties=False),
}

_ERRORS = {
    400: "the request is not as described",
    401: "the token is missing or wrong",
    403: "refused",
    404: "not here",
    405: "not with this method",
    408: "the request took too long to arrive",
    409: "not now, or not on this node",
    410: "events that are no longer held; `oldest` and `last` say what is",
    413: "the body is too long",
    503: "not now; try again after `Retry-After` seconds, here or at another node",
}


def _json(description: str, schema: Schema, **more: Any) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}, **more}


def _errors(*codes: int) -> dict[str, Schema]:
    return {str(code): _json(_ERRORS[code], _ref("Error")) for code in (*codes, 400, 405, 408, 413)}


def _get(summary: str, schema: Schema) -> Schema:
    return {"summary": summary, "responses": {"200": _json("it", schema), **_errors()}}


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _header(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _headers(**described: str) -> dict[str, Schema]:
    return {name: {"description": text, "schema": _TEXT} for name, text in described.items()}


def _body(content: dict[str, Schema]) -> Schema:
    return {"required": True, "content": {kind: {"schema": schema} for kind, schema in content.items()}}


def _events(config: WebConfig) -> dict[str, Schema]:
    name = {"type": "string", "pattern": NAME_PATTERN}
    post = {
        "operationId": "publish",
        "summary": "Publish an event, and get its number once the cluster has agreed on it",
        "parameters": [
            _header("Publisher", "whose event it is, the node's own if it is left out", name),
            _header(
                "Idempotency-Key",
                "makes it safe to repeat the request, at any node: the same publisher and key get the same number",
                name,
            ),
        ],
        "requestBody": _body(
            {
                "application/octet-stream": {"type": "string", "minLength": 1, "maxLength": config.max_body},
                "application/json": {},
            }
        ),
        "responses": {
            "201": _json("it has a number", _object({"sequence": _SEQUENCE}), headers=_headers(Location="the event")),
            **_errors(403, 503),
        },
    }
    get = {
        "operationId": "read",
        "summary": "Read events, or follow them as server-sent events with `Accept: text/event-stream`",
        "description": (
            f"An answer has at most {config.page_events:,} events, and about {config.page_bytes:,} bytes of them; a"
            ' `Link` header with `rel="next"` says where it goes on. On a stream the id is the number and the data an'
            " event as in the list, on one line; an event named `skipped`, with `first` and `last`, says which can no"
            " longer be had. A stream goes on after `Last-Event-ID`, or from `from` on, or with the next event."
        ),
        "parameters": [
            _query("from", "first number, by default the lowest that is held", _SEQUENCE),
            _query("to", "last number, by default the last there is; not for streams", _SEQUENCE),
            _query("encoding", "`base64`: every event as `data`", {"type": "string", "enum": ["base64"]}),
            _header("Last-Event-ID", "the last number that is known already", {**_SEQUENCE, "minimum": 0}),
        ],
        "responses": {
            "200": {
                "description": "the events that there are",
                "headers": _headers(Link="where it goes on"),
                "content": {
                    "application/json": {"schema": _list(_ref("Event"))},
                    "text/event-stream": {"schema": _TEXT},
                },
            },
            **_errors(410, 503),
        },
    }
    return {"get": get, "post": post}


def _callbacks() -> dict[str, dict[str, Schema]]:
    id: Schema = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
    post = {
        "operationId": "addCallback",
        "summary": "Have events sent to a URL by POST, in order, one at a time, each at least once",
        "requestBody": _body({"application/json": _ref("NewCallback")}),
        "responses": {
            "201": _json("registered", _ref("Callback"), headers=_headers(Location="the callback")),
            **_errors(403, 409, 410, 503),
        },
    }
    listed = {
        "operationId": "listCallbacks",
        "summary": "All callbacks",
        "responses": {"200": _json("all of them", _list(_ref("Callback"))), **_errors()},
    }
    get = {
        "operationId": "getCallback",
        "summary": "One callback",
        "parameters": [id],
        "responses": {"200": _json("how it is", _ref("Callback")), **_errors(404)},
    }
    delete = {
        "operationId": "removeCallback",
        "summary": "Send no more events",
        "parameters": [id],
        "responses": {"204": {"description": "it is gone"}, **_errors(403, 404, 503)},
    }
    return {"/callbacks": {"get": listed, "post": post}, "/callbacks/{id}": {"get": get, "delete": delete}}


def _others() -> dict[str, dict[str, Schema]]:
    text = {"description": "text", "content": {"text/plain": {"schema": _TEXT}}}
    health = {
        "200": _json("it can order events", _ref("Health")),
        **_errors(),
        "503": _json("it cannot", _ref("Health")),
    }
    reform = {
        "operationId": "reform",
        "summary": "Form the cluster anew with this node alone, when too many of its members are gone for good",
        "description": "The operator's last resort: what only others know is given up.",
        "requestBody": _body({"application/json": _ref("Reform")}),
        "responses": {"202": _json("it forms", _object({"mode": _MODE})), **_errors(403, 409)},
    }
    return {
        "/": {"get": _get("What is here", {"type": "object"})},
        "/openapi.json": {"get": {**_get("This", {"type": "object"}), "security": []}},
        "/cluster": {"get": _get("The cluster, from here", _ref("Cluster"))},
        "/cluster/reform": {"post": reform},
        "/health": {"get": {"summary": "Can this node order events?", "security": [], "responses": health}},
        "/metrics": {"get": {"summary": "Metrics for Prometheus", "responses": {"200": text, **_errors()}}},
    }


def describe(config: WebConfig, *, callbacks: bool, token: bool) -> Schema:
    """Return the description.

    :param callbacks: whether there are any.
    :param token: whether one is needed.
    """
    paths = {"/events": _events(config), **(_callbacks() if callbacks else {}), **_others()}
    for path in paths.values():
        for operation in list(path.values()):
            if token and operation.get("security") != []:
                operation["responses"]["401"] = _json(_ERRORS[401], _ref("Error"))
        if "get" in path:
            get = path["get"]
            head = {key: value for key, value in get.items() if key not in ("operationId", "requestBody")}
            answers = {code: {"description": item["description"]} for code, item in get["responses"].items()}
            path["head"] = {**head, "responses": answers}
    description: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": "fyrehose parcels",
            "version": "1",
            "description": "One order of events, kept by a cluster; this is one of its nodes.",
        },
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }
    if token:
        description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        description["security"] = [{"token": []}]
    return description
