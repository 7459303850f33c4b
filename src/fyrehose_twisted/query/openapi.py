"""OpenAPI description of the query site, served as ``/openapi.json``."""

from __future__ import annotations

from fyrehose_twisted.framing import MAX_KEY
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
_KEY: Schema = {"type": "string", "minLength": 1}
"""Key of a message. Its limit is one of bytes, which a schema of characters cannot express."""
_ANY_BYTES = f"; any bytes are accepted, percent-encoded, up to {MAX_KEY}"
_TIME: Schema = {"type": "string", "pattern": "^[0-9]{1,11}(\\.[0-9]{1,6})?$"}

_RECORD = object_schema(
    {
        "stream": TEXT,
        "epoch": COUNT,
        "sequence": COUNT,
        "position": {**COUNT, "description": "sequence number without its wrap-around; only if it differs"},
        "received_at": {**COUNT, "description": "UTC microseconds since 1970"},
        "repeat": {"const": True, "description": "the message is a repeat; only with `repeats=marked`"},
        "key": {**TEXT, "description": "the key of the message, if it has one that is UTF-8"},
        "key_data": {**TEXT, "contentEncoding": "base64", "description": "the key, if it is not UTF-8 or on request"},
        "json": {"description": "the payload, if it is JSON"},
        "text": {"type": "string", "description": "the payload, if it is UTF-8 but not JSON"},
        "data": {"type": "string", "contentEncoding": "base64"},
    },
    ("position", "repeat", "key", "key_data", "json", "text", "data"),
    additionalProperties=False,
    oneOf=[{"required": ["json"]}, {"required": ["text"]}, {"required": ["data"]}],
)

_EPOCH = {
    "epoch": COUNT,
    "first": COUNT,
    "next": {**COUNT, "description": "watermark: all numbers below it are stored or lost"},
    "last": {"type": "integer", "description": "highest number stored or lost; first - 1 if there is none"},
    "records": COUNT,
    "lost": COUNT,
    "missing": COUNT,
}

_STREAM = {
    "stream": TEXT,
    "name": {**TEXT, "description": "name in paths"},
    "records": COUNT,
    "bytes": COUNT,
    "segments": COUNT,
    "epochs": array_schema(object_schema(_EPOCH)),
    "last_received_at": {"type": ["integer", "null"], "description": "UTC microseconds since 1970"},
    "followers": COUNT,
    "damaged": {**COUNT, "description": "damaged places encountered"},
    "problem": {**TEXT, "description": "reason why it cannot be read; empty if it can"},
}

_LEVEL: Schema = {"type": "string", "enum": ["ok", "attention", "down"]}
_RATE: Schema = {"type": ["number", "null"], "description": "growth per second; null if unknown"}
_JUDGED = {
    "state": _LEVEL,
    "reasons": {**array_schema(TEXT), "description": "reasons why it is not ok"},
}
_BEHIND: Schema = {
    "type": ["number", "null"],
    "description": "lag in messages behind the newest known one of its stream",
}
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
            "kind": {**TEXT, "description": "`relay`, `journal`, `publisher`, `subscriber` or `other`, by its FLAGS"},
            "connected_seconds": _KNOWN,
            "silent_seconds": {**_KNOWN, "description": "since its latest KEEPALIVE"},
            "requested_seconds": {**_KNOWN, "description": "since its latest REQUEST; null if it has sent none"},
            "requests": {**_KNOWN, "description": "REQUESTs received from it"},
            "retransmitted": {**_KNOWN, "description": "messages retransmitted to it"},
            "retransmitting": {**_KNOWN, "description": "messages waiting for retransmission to it"},
            "lag": {**_KNOWN, "description": "newest number minus its durable watermark; null if unknown"},
            "rates": {"type": "object", "additionalProperties": _RATE},
        }
    ),
    "Service": object_schema(
        {
            "name": TEXT,
            "up": {**FLAG, "description": "whether it answered one of the last three scrapes"},
            "why": {**TEXT, "description": "error of the latest scrape"},
            "at": {**NUMBER, "description": "end of the latest scrape"},
            "heard_at": {**NUMBER, "description": "time of the last successful scrape; 0 if there is none"},
            "missed": {**COUNT, "description": "consecutive failed scrapes"},
            "age": {
                "type": ["number", "null"],
                "description": "seconds since the last successful scrape; null if there is none",
            },
            "kind": {**TEXT, "description": "kind of the service; `other` if unknown"},
            "rates": {"type": "object", "additionalProperties": _RATE},
            "recent": {**_OPEN, "description": "growth of counters over the last five minutes, by label"},
            "behind": _BEHIND,
            "metrics": _OPEN,
            "clients": {
                "description": "clients of a backbone or relay; null for other services",
                "oneOf": [
                    {"type": "null"},
                    object_schema(
                        {
                            "up": {
                                **FLAG,
                                "description": "whether one of the last three scrapes of the list succeeded",
                            },
                            "why": {**TEXT, "description": "error of the latest scrape of the list"},
                            "age": {**_KNOWN, "description": "seconds since the last successful scrape"},
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
            "topology": object_schema(
                {
                    "nodes": array_schema(ref("TopologyNode")),
                    "more": {**COUNT, "description": "nodes beyond the limit of a list"},
                }
            ),
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
            "lost_lately": {**COUNT, "description": "lost in the last hour, or before this service started"},
            "behind": _BEHIND,
            **_JUDGED,
        }
    ),
    "TopologyNode": object_schema(
        {
            "id": TEXT,
            "name": {**TEXT, "description": "name of a watched service; address of any other node"},
            "kind": {
                **TEXT,
                "description": "kind of a watched service or of a listed client; `server` if it is only known by name",
            },
            "stream": {**TEXT, "description": "URI of the stream; empty if unknown"},
            "state": {"enum": ["ok", "attention", "down", "unknown"]},
            "reasons": array_schema(TEXT),
            "address": {"type": ["string", "null"], "description": "address as a client; null if unknown"},
            "role": {"enum": ["", "leads", "stands by", "votes"], "description": "in a group of backbones"},
            "group": {**TEXT, "description": "stream of the group that it is a member of, or empty"},
            "watched": FLAG,
            "lag": {**_KNOWN, "description": "messages behind the newest number"},
            "missing": {**_KNOWN, "description": "messages missing now"},
            "lost": {**_KNOWN, "description": "messages lost since it started"},
            "repaired": {**_KNOWN, "description": "missing messages repaired since it started"},
            "resent": {**_KNOWN, "description": "messages that it has sent to others again"},
            "number": {**_KNOWN, "description": "last number assigned, passed on or delivered"},
            "rate": _RATE,
            "link": {
                "description": "its connection to `parent`, as the parent lists it; null if it does not",
                "oneOf": [
                    {"type": "null"},
                    object_schema(
                        {
                            "serves": {**FLAG, "description": "whether the parent sends it the stream"},
                            "rate": _RATE,
                            "requests": {**_KNOWN, "description": "REQUESTs since it joined"},
                            "resent": {**_KNOWN, "description": "messages sent to it again since it joined"},
                            "queued": {**_KNOWN, "description": "messages that wait to be sent to it again"},
                        }
                    ),
                ],
            },
            "level": {**COUNT, "description": "servers between it and its root"},
            "more": {**COUNT, "description": "its clients that are not among the nodes"},
            "parent": {"type": ["string", "null"], "description": "id of the node that serves it"},
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
            "may_fail": {
                "type": ["integer", "null"],
                "description": "further nodes that may fail before the quorum is lost",
            },
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
            f"A response has at most {config.page_records:,} records and about {config.page_bytes:,} bytes of payloads."
            ' A `Link` header with `rel="next"`, or `rel="prev"` with `last`, is where to continue. Numbers without a'
            " record are left out. `Accept: application/x-ndjson` returns one record per line. On a stream, the id is"
            " `SEQUENCE`, or `EPOCH:SEQUENCE` in epochs other than 0, and the data is a record on one line. A `skipped`"
            " event has the `epoch`, `first` and `last` of records that are not available. A `position` event has the"
            " position of the client. Comments are keepalives. A stream continues after `Last-Event-ID`, or `id` in the"
            " query of clients that cannot send headers; otherwise it begins at `from`, `since` or `last`, or with the"
            " next record. A position beyond that is answered with 409. A stream has no `to`, `until` or `limit`."
            ' `Upgrade: websocket` delivers messages instead: records, `{"skipped": ...}` and `{"position": ID}`.'
        ),
        "parameters": [
            _NAME,
            query_parameter(
                "from", "first record: `SEQUENCE` or `EPOCH:SEQUENCE`; by default the start of the stream", _POSITION
            ),
            query_parameter("to", "last record, inclusive", _POSITION),
            query_parameter("since", "records received at this time or later: RFC 3339, or seconds since 1970", _TIME),
            query_parameter("until", "records received before this time", _TIME),
            query_parameter(
                "where",
                "JMESPath filter: only records with a JSON payload for which the result is true. The pattern describes"
                " filters with little nesting; others are accepted as well",
                {
                    "type": "string",
                    "format": "jmespath",
                    "pattern": SIMPLE_FILTER,
                    "minLength": 1,
                    "maxLength": config.max_expression,
                },
            ),
            query_parameter("key", f"only records whose message has this key{_ANY_BYTES}", _KEY),
            query_parameter(
                "key_prefix", f"only records whose message has a key that begins with this{_ANY_BYTES}", _KEY
            ),
            query_parameter("limit", "maximum number of records", count),
            query_parameter("last", "only this many of the newest records", count),
            query_parameter(
                "encoding",
                "`base64`: every payload as `data`, and key as `key_data`",
                {"type": "string", "enum": ["base64"]},
            ),
            query_parameter("repeats", "`marked`: include and mark repeats", {"type": "string", "enum": ["marked"]}),
            request_header("Last-Event-ID", "last id that the client has received; only for streams", _LAST_EVENT_ID),
        ],
        "responses": {
            "200": {
                "description": "records",
                "headers": response_headers(Link="URL of the next page"),
                "content": {
                    "application/json": {"schema": array_schema(ref("Record"))},
                    "application/x-ndjson": {"schema": {**TEXT, "description": "one Record per line"}},
                    "text/event-stream": {"schema": {**TEXT, "description": "one Record in the data of each message"}},
                },
            },
            "101": {"description": "a WebSocket"},
            **error_responses(404, 409, 410, 503),
        },
    }


_NAME: Schema = {"name": "name", "in": "path", "required": True, "schema": TEXT}


def describe_openapi(config: QueryConfig, *, token: bool) -> Schema:
    """Return the description of the site.

    :param token: whether a token is required.
    """
    overview = get_operation(
        "overview", "Overview of journals and services; a stream with `Accept: text/event-stream`", ref("Overview"), 503
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
                "history", "Growth a second in each step of the last hour, oldest first", ref("History")
            )
        },
        "/health": {
            "get": health_operation("Check whether all journals can be read", "all can be read", "some cannot be read")
        },
        "/metrics": {"get": metrics_operation()},
        "/openapi.json": {"get": description_operation()},
    }
    about = "Journals of all protocols: record ranges, live streams and their state."
    return document("fyrehose query", about, paths, _SCHEMAS, token=token, always=(403, 421, 429))
