"""Pieces of the descriptions of sites, as OpenAPI 3.1 has them."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}

ERRORS = {
    400: "the request is not as described",
    401: "the token is missing or wrong",
    403: "refused",
    404: "not here",
    405: "not with this method",
    408: "the request took too long to arrive",
    409: "not now, or not on this node; `next` says where a stream goes on",
    410: "what is no longer held; `oldest` says what is",
    413: "the body is too long",
    415: "the body is compressed in a way that is not known here; `Accept-Encoding` says what is",
    421: "not by this name",
    422: "the key was used before, for something else",
    429: "you ask too much; try again after `Retry-After` seconds",
    500: "this program has a mistake, which is in its log",
    503: "not now; try again after `Retry-After` seconds",
}


def object_schema(members: dict[str, Schema], optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """Return the schema of an object."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required, **more}


def array_schema(items: Schema) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """Return a reference to a schema that has a name."""
    return {"$ref": f"#/components/schemas/{name}"}


def json_content(description: str, schema: Schema, **more: Any) -> Schema:
    """Return an answer that is JSON."""
    return {"description": description, "content": {"application/json": {"schema": schema}}, **more}


def error_responses(*codes: int) -> dict[str, Schema]:
    """Return those answers, and the ones that everything may have."""
    always = 400, 405, 408, 413, 500
    return {str(code): json_content(ERRORS[code], ref("Error")) for code in sorted({*codes, *always})}


def get_operation(id: str, summary: str, schema: Schema, *codes: int, **more: object) -> Schema:
    """Return the operation ``id``, which gets what ``schema`` describes.

    :param codes: statuses of the errors that it has beside those that everything may have.
    """
    answers = {"200": json_content("it", schema), **error_responses(*codes)}
    return {"operationId": id, "summary": summary, "responses": answers, **more}


def health_operation(question: str, good: str, bad: str) -> Schema:
    """Return the operation that answers whether a service can do its work, without a token."""
    answers = {"200": json_content(good, ref("Health")), **error_responses(), "503": json_content(bad, ref("Health"))}
    return {"operationId": "health", "summary": question, "security": [], "responses": answers}


def description_operation() -> Schema:
    """Return the operation that gets the description, without a token."""
    return get_operation("description", "This", {"type": "object"}, security=[])


def metrics_operation() -> Schema:
    """Return the operation that gets the metrics."""
    text = {"description": "text", "content": {"text/plain": {"schema": TEXT}}}
    return {
        "operationId": "metrics",
        "summary": "Metrics for Prometheus",
        "responses": {"200": text, **error_responses()},
    }


def query_parameter(name: str, description: str, schema: Schema) -> Schema:
    """Return a parameter of a query."""
    return {"name": name, "in": "query", "description": description, "schema": schema}


def request_header(name: str, description: str, schema: Schema) -> Schema:
    """Return a header that a request may have."""
    return {"name": name, "in": "header", "description": description, "schema": schema}


def response_headers(**described: str) -> dict[str, Schema]:
    """Return the headers of an answer, which are texts."""
    return {name: {"description": text, "schema": TEXT} for name, text in described.items()}


def request_body(content: dict[str, Schema]) -> Schema:
    """Return a body that has to be there."""
    return {
        "required": True,
        "description": "As it is or, as `Content-Encoding` says, compressed with gzip; limits are for it unpacked",
        "content": {kind: {"schema": schema} for kind, schema in content.items()},
    }


def document(
    title: str,
    description: str,
    paths: dict[str, dict[str, Schema]],
    schemas: dict[str, Schema],
    *,
    token: bool,
    always: tuple[int, ...] = (),
) -> Schema:
    """Return a whole description: each ``GET`` gets its ``HEAD``, and what needs a token says so.

    :param token: whether there is one; what is open has ``"security": []``.
    :param always: codes that everything may be answered with.
    """
    for path in paths.values():
        for operation in list(path.values()):
            for code in always:
                operation["responses"].setdefault(str(code), json_content(ERRORS[code], ref("Error")))
            if "requestBody" in operation:
                operation["responses"].setdefault("415", json_content(ERRORS[415], ref("Error")))
            if token and operation.get("security") != []:
                operation["responses"]["401"] = json_content(ERRORS[401], ref("Error"))
        if "get" in path:
            get = path["get"]
            head = {key: value for key, value in get.items() if key != "requestBody"}
            head["operationId"] = f"{get['operationId']}Head"
            answers = {code: {"description": item["description"]} for code, item in get["responses"].items()}
            path["head"] = {**head, "responses": answers}
    schemas = {"Error": object_schema({"error": TEXT, "message": TEXT}), **schemas}
    made: Schema = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1", "description": description},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if token:
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}]
    return made
