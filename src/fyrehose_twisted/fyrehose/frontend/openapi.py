"""``/openapi.json``: the description of the site, for people and for programs that write clients."""

from __future__ import annotations

from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.messages import MAX_SEQUENCE
from fyrehose_twisted.web.openapi import (
    COUNT,
    FLAG,
    Schema,
    body_of,
    description_of,
    document,
    errors,
    health_of,
    json_of,
    list_of,
    metrics_of,
    object_of,
    ref,
)

_SEQUENCE: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_SEQUENCE}

_SCHEMAS = {
    "Published": {
        "oneOf": [object_of({"sequence": _SEQUENCE}), object_of({"sequences": list_of(_SEQUENCE)})],
    },
    "Health": object_of({"backbone": FLAG, "waiting_bytes": COUNT}),
}


def describe(config: FrontendConfig, *, token: bool) -> Schema:
    """Return the description.

    :param token: whether one is needed.
    """
    post = {
        "operationId": "publish",
        "summary": "Publish a message or, as NDJSON, a message a line, and be told the numbers",
        "description": (
            "It is answered once the messages have come back from the backbone, so that they are published. A request"
            " that is not answered, or with `unknown` true, may be published all the same; repeating it may publish it"
            f" twice. NDJSON has at most {config.batch_messages:,} lines. Their numbers are told in the order of the"
            " lines; they ascend unless the network lost a message, and others may have numbers between them."
        ),
        "requestBody": body_of(
            {
                "application/octet-stream": {"type": "string", "minLength": 1},
                "application/json": {},
                "application/x-ndjson": {"type": "string", "minLength": 1},
            }
        ),
        "responses": {"201": json_of("published", ref("Published")), **errors(503)},
    }
    paths: dict[str, dict[str, Schema]] = {
        "/messages": {"post": post},
        "/health": {"get": health_of("Does the backbone answer?", "it does", "it does not")},
        "/metrics": {"get": metrics_of()},
        "/openapi.json": {"get": description_of()},
    }
    about = "Publish to a fyrehose backbone without its protocol."
    return document("fyrehose frontend", about, paths, _SCHEMAS, token=token, always=(403, 421, 429))
