"""Building blocks of OpenAPI 3.1 descriptions."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}

ERRORS = {
    400: "the request is invalid",
    401: "the token is missing or wrong",
    403: "the request is not allowed",
    404: "not found",
    405: "the method is not allowed",
    408: "the request took too long to arrive",
    409: "not possible now or on this node; `next` is where a stream continues",
    410: "no longer stored; `oldest` is the first position that is",
    413: "the body is too long",
    415: "the coding of the body is not supported; `Accept-Encoding` lists supported ones",
    421: "the host name is not allowed",
    422: "the key was already used for another request",
    429: "too many requests or streams; try again after `Retry-After` seconds",
    500: "internal error; see the log of the server",
    503: "temporarily unavailable; try again after `Retry-After` seconds",
}


def object_schema(members: dict[str, Schema], optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """Return the schema of an object."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required, **more}


def array_schema(items: Schema) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """Return a reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def json_content(description: str, schema: Schema, **more: Any) -> Schema:
    """Return the description of a JSON response."""
    return {"description": description, "content": {"application/json": {"schema": schema}}, **more}


def error_responses(*codes: int) -> dict[str, Schema]:
    """Return the error responses ``codes`` and those common to all operations."""
    always = 400, 405, 408, 413, 500
    return {str(code): json_content(ERRORS[code], ref("Error")) for code in sorted({*codes, *always})}


def get_operation(id: str, summary: str, schema: Schema, *codes: int, **more: object) -> Schema:
    """Return the description of the GET operation ``id``.

    :param schema: schema of the response.
    :param codes: status codes of errors in addition to those common to all operations.
    """
    answers = {"200": json_content("the resource", schema), **error_responses(*codes)}
    return {"operationId": id, "summary": summary, "responses": answers, **more}


def health_operation(question: str, good: str, bad: str) -> Schema:
    """Return the description of the health check, which requires no token."""
    answers = {"200": json_content(good, ref("Health")), **error_responses(), "503": json_content(bad, ref("Health"))}
    return {"operationId": "health", "summary": question, "security": [], "responses": answers}


def description_operation() -> Schema:
    """Return the description of the operation that gets this document, which requires no token."""
    return get_operation("description", "Get this description", {"type": "object"}, security=[])


def metrics_operation() -> Schema:
    """Return the description of the operation that gets the metrics."""
    text = {"description": "text", "content": {"text/plain": {"schema": TEXT}}}
    return {
        "operationId": "metrics",
        "summary": "Get the metrics for Prometheus",
        "responses": {"200": text, **error_responses()},
    }


def query_parameter(name: str, description: str, schema: Schema) -> Schema:
    """Return the description of a query parameter."""
    return {"name": name, "in": "query", "description": description, "schema": schema}


def request_header(name: str, description: str, schema: Schema) -> Schema:
    """Return the description of a request header."""
    return {"name": name, "in": "header", "description": description, "schema": schema}


def response_headers(**described: str) -> dict[str, Schema]:
    """Return the descriptions of response headers, which are strings."""
    return {name: {"description": text, "schema": TEXT} for name, text in described.items()}


def request_body(content: dict[str, Schema]) -> Schema:
    """Return the description of a required request body."""
    return {
        "required": True,
        "description": "Plain, or with `Content-Encoding: gzip`; limits apply to the decompressed body",
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
    """Return a complete description, with a ``HEAD`` for each ``GET`` and the required token.

    :param token: whether a token is required. Open operations have ``"security": []``.
    :param always: status codes of errors that all operations may return.
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
    content: Schema = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1", "description": description},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if token:
        content["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        content["security"] = [{"token": []}]
    return content
