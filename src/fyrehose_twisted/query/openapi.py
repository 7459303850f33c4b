"""``/openapi.json``: the description of the site, for people and for programs that write clients."""

from __future__ import annotations

from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.records.pattern import SIMPLE_FILTER
from fyrehose_twisted.web.openapi import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    Schema,
    array_schema,
    description_operation,
    document,
    error_responses,
    get_operation,
    health_operation,
    metrics_operation,
    object_schema,
    query_parameter,
    ref,
    request_header,
    response_headers,
)

_POSITION: Schema = {"type": "string", "pattern": "^([0-9]{1,19}:)?[0-9]{1,19}$"}
_LAST_EVENT_ID: Schema = {"type": "string", "pattern": "^(([0-9]{1,19}:)?[0-9]{1,19})?$"}
_TIME: Schema = {"type": "string", "pattern": "^[0-9]{1,11}(\\.[0-9]{1,6})?$"}

_RECORD = object_schema(
    {
        "stream": TEXT,
        "epoch": COUNT,
        "sequence": COUNT,
        "position": {**COUNT, "description": "where numbers begin anew, this goes on"},
        "received_at": {**COUNT, "description": "UTC microseconds since 1970"},
        "repeat": {"const": True, "description": "the message was published before; only if repeats are asked for"},
        "json": {"description": "the payload itself, if it is a JSON text"},
        "text": {"type": "string", "description": "the payload, if it is UTF-8 and no JSON text"},
        "data": {"type": "string", "contentEncoding": "base64"},
    },
    ("position", "repeat", "json", "text", "data"),
    additionalProperties=False,
    oneOf=[{"required": ["json"]}, {"required": ["text"]}, {"required": ["data"]}],
)

_EPOCH = {
    "epoch": COUNT,
    "first": COUNT,
    "next": {**COUNT, "description": "all below are held, or lost for good"},
    "last": {"type": "integer", "description": "the highest that is held or lost; first - 1 if there is none"},
    "records": COUNT,
    "lost": COUNT,
    "missing": COUNT,
}

_STREAM = {
    "stream": TEXT,
    "name": {**TEXT, "description": "what it is called in paths"},
    "records": COUNT,
    "bytes": COUNT,
    "segments": COUNT,
    "epochs": array_schema(object_schema(_EPOCH)),
    "last_received_at": {"type": ["integer", "null"], "description": "UTC microseconds since 1970"},
    "followers": COUNT,
    "damaged": {**COUNT, "description": "damaged places that were met"},
    "problem": {**TEXT, "description": "why it cannot be read"},
}

_LEVEL: Schema = {"type": "string", "enum": ["ok", "attention", "down"]}
_RATE: Schema = {"type": ["number", "null"], "description": "growth a second; null if unknown"}
_JUDGED = {
    "state": _LEVEL,
    "reasons": {**array_schema(TEXT), "description": "why it is not ok"},
}
_BEHIND: Schema = {"type": ["number", "null"], "description": "messages behind the newest one known of its stream"}
_KNOWN: Schema = {"type": ["number", "null"], "minimum": 0}
_OPEN: Schema = {"type": "object"}

_RANGES = array_schema({"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2})

_SCHEMAS = {
    "Record": _RECORD,
    "Stream": object_schema(_STREAM),
    "StreamInDetail": object_schema(
        _STREAM | {"epochs": array_schema(object_schema(_EPOCH | {"lost_ranges": _RANGES, "missing_ranges": _RANGES}))}
    ),
    "Client": object_schema(
        {
            "address": TEXT,
            "kind": {**TEXT, "description": "`journal`, `publisher`, `subscriber` or `other`, by its FLAGS"},
            "connected_seconds": _KNOWN,
            "silent_seconds": {**_KNOWN, "description": "since its latest KEEPALIVE"},
            "requested_seconds": {**_KNOWN, "description": "since its latest REQUEST; null if it has sent none"},
            "retransmitting": {**_KNOWN, "description": "messages that wait to be sent to it again"},
            "lag": {**_KNOWN, "description": "newest number less what it holds durably; null if it does not say"},
            "rates": {"type": "object", "additionalProperties": _RATE},
        }
    ),
    "Service": object_schema(
        {
            "name": TEXT,
            "up": {**FLAG, "description": "it answered one of the last three scrapes"},
            "why": {**TEXT, "description": "error of the latest scrape"},
            "at": {**NUMBER, "description": "when the latest scrape ended"},
            "heard_at": {**NUMBER, "description": "when a scrape was answered last; 0 if none was"},
            "missed": {**COUNT, "description": "scrapes in a row without an answer"},
            "age": {"type": ["number", "null"], "description": "seconds since then; null if none was"},
            "kind": {**TEXT, "description": "what the service is; `other` if that is unknown"},
            "rates": {"type": "object", "additionalProperties": _RATE},
            "recent": {**_OPEN, "description": "growth of counters over the last five minutes, by label"},
            "behind": _BEHIND,
            "metrics": _OPEN,
            "clients": {
                "description": "the clients of a backbone, `list` of them; null of other services",
                "oneOf": [
                    {"type": "null"},
                    object_schema(
                        {
                            "up": {**FLAG, "description": "one of the last three scrapes of the list was answered"},
                            "why": {**TEXT, "description": "error of the latest scrape of the list"},
                            "age": {**_KNOWN, "description": "seconds since one was answered"},
                            "total": COUNT,
                            "list": array_schema(ref("Client")),
                        }
                    ),
                ],
            },
            **_JUDGED,
        },
    ),
    "Overview": object_schema(
        {
            "at": NUMBER,
            "version": TEXT,
            "started_at": NUMBER,
            "state": _LEVEL,
            "findings": array_schema(object_schema({"subject": TEXT, "level": _LEVEL, "what": TEXT, "text": TEXT})),
            "streams": array_schema(ref("JudgedStream")),
            "services": array_schema(ref("Service")),
            "clusters": array_schema(ref("Cluster")),
            "disk": {"type": "object", "properties": {"free": COUNT, "total": COUNT}},
            "events": array_schema(object_schema({"at": NUMBER, "level": _LEVEL, "subject": TEXT, "text": TEXT})),
            "query": object_schema({"requests": COUNT, "streams": COUNT, "connections": COUNT, "refused": COUNT}),
        }
    ),
    "JudgedStream": object_schema(
        {
            **_STREAM,
            "rate": _RATE,
            "lost_lately": {**COUNT, "description": "lost in the last hour, or before this service began"},
            "behind": _BEHIND,
            **_JUDGED,
        }
    ),
    "Cluster": object_schema(
        {
            "kind": TEXT,
            "name": TEXT,
            "title": TEXT,
            "watched": COUNT,
            "up": COUNT,
            "members": COUNT,
            "alive": COUNT,
            "quorum": COUNT,
            "leaders": array_schema(TEXT),
            "may_fail": {"type": ["integer", "null"], "description": "nodes that may fail before it has no quorum"},
            **_JUDGED,
        }
    ),
    "History": object_schema(
        {
            "at": NUMBER,
            "step": {**COUNT, "description": "seconds"},
            "series": {"type": "object", "additionalProperties": array_schema(_RATE)},
        }
    ),
    "Health": object_schema({"streams": COUNT, "problems": COUNT}),
}


def _records(config: QueryConfig) -> Schema:
    count: Schema = {"type": "integer", "minimum": 1, "maximum": config.page_records}
    return {
        "operationId": "records",
        "summary": "Read records, or follow them as server-sent events with `Accept: text/event-stream`",
        "description": (
            f"An answer has at most {config.page_records:,} records, and about {config.page_bytes:,} bytes of payloads;"
            ' a `Link` header with `rel="next"`, or with `last` `rel="prev"`, says where it goes on. Numbers that'
            " nobody has are left out. With `Accept: application/x-ndjson` there is one a line. On a stream the id is"
            " `SEQUENCE`, or in epochs but 0 `EPOCH:SEQUENCE`, and the data is a record as in the list, on one line; an"
            " event named `skipped`, with `epoch`, `first` and `last`, says which cannot be had, and one named"
            " `position` how far the client is; a comment is a sign of life. A stream goes on after `Last-Event-ID`, or"
            " `id` in the query of those who cannot send headers, or from `from`, `since` or `last` on, or with the"
            " next record; what lies beyond that is answered with 409. There is no `to`, `until` and `limit` for it."
            ' With `Upgrade: websocket` the same comes as messages: records, `{"skipped": ...}` and `{"position": ID}`.'
        ),
        "parameters": [
            _NAME,
            query_parameter(
                "from", "where to begin: `SEQUENCE` or `EPOCH:SEQUENCE`; by default where the stream does", _POSITION
            ),
            query_parameter("to", "the last one that is wanted", _POSITION),
            query_parameter("since", "what was received then or later: RFC 3339, or seconds since 1970", _TIME),
            query_parameter("until", "what was received before", _TIME),
            query_parameter(
                "where",
                "JMESPath: only records whose payload is JSON and for which this gives something true. The pattern is"
                " that of filters with little nesting; others are taken, too",
                {
                    "type": "string",
                    "format": "jmespath",
                    "pattern": SIMPLE_FILTER,
                    "minLength": 1,
                    "maxLength": config.max_expression,
                },
            ),
            query_parameter("limit", "at most so many", count),
            query_parameter("last", "of all those only the newest so many", count),
            query_parameter("encoding", "`base64`: every payload as `data`", {"type": "string", "enum": ["base64"]}),
            query_parameter("repeats", "`marked`: repeats as well, marked", {"type": "string", "enum": ["marked"]}),
            request_header(
                "Last-Event-ID", "the last id that is known already, if any; only for streams", _LAST_EVENT_ID
            ),
        ],
        "responses": {
            "200": {
                "description": "the records that there are",
                "headers": response_headers(Link="where it goes on"),
                "content": {
                    "application/json": {"schema": array_schema(ref("Record"))},
                    "application/x-ndjson": {"schema": {**TEXT, "description": "a Record a line"}},
                    "text/event-stream": {"schema": {**TEXT, "description": "a Record in the data of each message"}},
                },
            },
            "101": {"description": "a WebSocket"},
            **error_responses(404, 409, 410, 503),
        },
    }


_NAME: Schema = {"name": "name", "in": "path", "required": True, "schema": TEXT}


def describe_openapi(config: QueryConfig, *, token: bool) -> Schema:
    """Return the description.

    :param token: whether one is needed.
    """
    overview = get_operation(
        "overview", "How everything fares; again and again with `Accept: text/event-stream`", ref("Overview"), 503
    )
    overview["responses"]["200"]["content"]["text/event-stream"] = {"schema": TEXT}
    paths: dict[str, dict[str, Schema]] = {
        "/streams": {"get": get_operation("streams", "All streams", array_schema(ref("Stream")))},
        "/streams/{name}": {
            "get": get_operation("stream", "One stream", ref("StreamInDetail"), 404, parameters=[_NAME])
        },
        "/streams/{name}/records": {"get": _records(config)},
        "/overview": {"get": overview},
        "/history": {
            "get": get_operation(
                "history", "Growth a second in each step of the last hour, the oldest first", ref("History")
            )
        },
        "/health": {"get": health_operation("Can all journals be read?", "they can", "some cannot")},
        "/metrics": {"get": metrics_operation()},
        "/openapi.json": {"get": description_operation()},
    }
    about = "The journals of all protocols: what was said, what is said now, and how far each has got."
    return document("fyrehose query", about, paths, _SCHEMAS, token=token, always=(403, 421, 429))
