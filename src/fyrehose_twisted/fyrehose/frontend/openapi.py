"""OpenAPI description of the frontend, served as ``/openapi.json``."""

from __future__ import annotations

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
        "summary": "Publish a message or, as NDJSON, a message a line, and be told the numbers",
        "description": (
            "It is answered once the messages have come back from the backbone, so that they have numbers and were sent"
            " to all subscribers, and once as many durable journals as `Kept` says have synced them to disk. A request"
            " that is not answered, or with `unknown` true, may be published all the same; repeating it without"
            f" `Idempotency-Key` may publish it twice. NDJSON has at most {config.batch_messages:,} lines. Their"
            " numbers are told in the order of the lines; they ascend unless the network lost a message, and others may"
            " have numbers between them."
        ),
        "parameters": [
            request_header(
                "Kept",
                "durable journals that must have synced the messages before the answer; the frontend's own number if it"
                " is left out",
                {"type": "string", "pattern": f"^({'|'.join(map(str, range(kept, MAX_HOLDINGS + 1)))})$"},
            ),
            request_header(
                "Idempotency-Key",
                "makes it safe to repeat the request, at this frontend: the same key and body get the same numbers",
                {"type": "string", "pattern": "^[!-~]([ -~]{0,62}[!-~])?$"},
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
            "201": json_content("published and, where journals were asked for, kept", ref("Published")),
            **error_responses(409, 422, 503),
            "504": json_content("published, and too few journals have synced it in time", ref("NotKept")),
        },
    }
    paths: dict[str, dict[str, Schema]] = {
        "/messages": {"post": post},
        "/health": {"get": health_operation("Does the backbone answer?", "it does", "it does not")},
        "/metrics": {"get": metrics_operation()},
        "/openapi.json": {"get": description_operation()},
    }
    about = "Publish to a fyrehose backbone without its protocol."
    return document("fyrehose frontend", about, paths, _SCHEMAS, token=token, always=(403, 421, 429))
