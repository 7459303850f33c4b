"""OpenAPI description of the frontend, served as ``/openapi.json``."""

from __future__ import annotations

from fyrehose_twisted.framing import MAX_KEY
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS, MAX_SEQUENCE
from fyrehose_twisted.web.openapi import (
    COUNT,
    FLAG,
    TEXT,
    Schema,
    array_schema,
    description_operation,
    document,
    error_responses,
    health_operation,
    json_content,
    metrics_operation,
    object_schema,
    query_parameter,
    ref,
    request_body,
    request_header,
)

_SEQUENCE: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_SEQUENCE}

_SCHEMAS = {
    "Published": {
        "oneOf": [object_schema({"sequence": _SEQUENCE}), object_schema({"sequences": array_schema(_SEQUENCE)})],
    },
    "NotKept": object_schema(
        {
            "error": {"const": "not-kept"},
            "message": TEXT,
            "had": COUNT,
            "wanted": COUNT,
            "sequence": _SEQUENCE,
            "sequences": array_schema(_SEQUENCE),
        },
        ("sequence", "sequences"),
    ),
    "Health": object_schema({"backbone": FLAG, "waiting_bytes": COUNT}),
}


def describe_openapi(config: FrontendConfig, *, token: bool, kept: int = 0) -> Schema:
    """Return the OpenAPI description.

    :param token: whether clients need a token.
    :param kept: default number of durable journals that must sync a message before the response.
    """
    post = {
        "operationId": "publish",
        "summary": "Publish a message or, as NDJSON, one message per line; returns the numbers",
        "description": (
            "The response follows when the backbone has numbered the messages and sent them to all subscribers, and the"
            " number of durable journals in `Kept` have synced them to disk. If there is no response, or one with"
            " `unknown` true, the messages may be published nevertheless; repeating the request without"
            f" `Idempotency-Key` may publish them twice. NDJSON has at most {config.batch_messages:,} lines. Their"
            " numbers are in the order of the lines. They ascend unless the network lost a message, and other messages"
            " may have numbers between them."
        ),
        "parameters": [
            request_header(
                "Kept",
                "number of durable journals that must sync the messages before the response; by default, that of the"
                " frontend",
                {"type": "string", "pattern": f"^({'|'.join(map(str, range(kept, MAX_HOLDINGS + 1)))})$"},
            ),
            request_header(
                "Idempotency-Key",
                "makes the request safe to repeat, at this frontend: the same key, query and body return the same"
                " numbers",
                {"type": "string", "pattern": "^[!-~]([ -~]{0,62}[!-~])?$"},
            ),
            query_parameter(
                "key",
                "key of the message, or of each message, by which readers select; any bytes are accepted,"
                f" percent-encoded, up to {MAX_KEY}",
                {"type": "string", "minLength": 1},
            ),
        ],
        "requestBody": request_body(
            {
                "application/octet-stream": {"type": "string", "minLength": 1},
                "application/json": {},
                "application/x-ndjson": {"type": "string", "minLength": 1},
            }
        ),
        "responses": {
            "201": json_content("published and, if requested, synced by journals", ref("Published")),
            **error_responses(409, 422, 503),
            "504": json_content("published, but too few journals synced it in time", ref("NotKept")),
        },
    }
    paths: dict[str, dict[str, Schema]] = {
        "/messages": {"post": post},
        "/health": {"get": health_operation("Whether the backbone replies", "it does", "it does not")},
        "/metrics": {"get": metrics_operation()},
        "/openapi.json": {"get": description_operation()},
    }
    about = "Publish to a fyrehose backbone without its protocol."
    return document("fyrehose frontend", about, paths, _SCHEMAS, token=token, always=(403, 421, 429))
