"""What requests say: their queries, headers and bodies, checked."""

from __future__ import annotations

import json
import re
from typing import Any

from fyrehose_twisted.web.channel import ZERO_QUALITY, WebRequest
from fyrehose_twisted.web.response import bad_request

MAX_NUMBER = 2**63 - 1
"""No number in a query or a header is higher."""

MAX_DEPTH = 64
"""How deep JSON may be nested: deeper than any that is meant, and flat enough for every parser."""

PRINTABLE = re.compile(rb"[!-~](?:[ -~]{0,62}[!-~])?")
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def query_params(request: WebRequest, *known: bytes) -> dict[bytes, bytes]:
    """Return the parameters of the query.

    :raises Problem: if one is not ``known``, or is there twice.
    """
    args: dict[bytes, list[bytes]] = request.args or {}
    if args:
        strangers = args.keys() - set(known)
        if strangers:
            raise bad_request(f"unknown parameter {_quote(min(strangers))}; known: {b', '.join(known).decode()}")
        for name, values in args.items():
            if len(values) > 1:
                raise bad_request(f"{name.decode()} is there {len(values)} times")
    return {name: values[0] for name, values in args.items()}


def parse_number(text: bytes | None, name: str, lowest: int = 1, highest: int = MAX_NUMBER) -> int | None:
    """Return a number, ``None`` for ``None``.

    :raises Problem: if it is none.
    """
    if text is None:
        return None
    # int() would take spaces, signs, underscores and the digits of other scripts, and very many of them.
    if re.fullmatch(rb"[0-9]{1,19}", text) and lowest <= (value := int(text)) <= highest:
        return value
    raise bad_request(f"{name} is a number from {lowest} to {highest}, and not {_quote(text)}")


def single_header(request: WebRequest, name: bytes) -> bytes | None:
    """Return a header, which may be there once.

    :raises Problem: if it is there more often.
    """
    values = request.requestHeaders.getRawHeaders(name)
    if values is None:
        return None
    if len(values) > 1:
        raise bad_request(f"{name.decode()} is there {len(values)} times")
    value: bytes = values[0]
    return value


def token_header(request: WebRequest, name: bytes) -> str:
    """Return a header of 1 to 64 printable characters, empty if it is not there.

    :raises Problem: if it is anything else.
    """
    value = single_header(request, name)
    if value is None:
        return ""
    if PRINTABLE.fullmatch(value) is None:
        raise bad_request(f"{name.decode()} has 1 to 64 characters of printable ASCII")
    return value.decode("ascii")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# json.loads would make one for each call.
_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def parse_json(data: bytes) -> Any:
    """Return what is written in a JSON text in UTF-8.

    :raises ValueError: if it is none, or nested too deep.
    """
    text = data.decode("utf-8")
    try:
        content = _decode(text)
    except RecursionError:
        content, deep = None, True
    else:
        deep = _is_too_deep(text)
    if deep:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
    return content


def _is_too_deep(text: str) -> bool:
    # Only for what is JSON: a string without end would have the pattern look at everything again and again.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False


def json_object(request: WebRequest, *known: str) -> dict[str, Any]:
    """Return the body, a JSON object.

    :raises Problem: if it is none, or has members that are not ``known``.
    """
    try:
        content = parse_json(request.content.read())
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise bad_request("the body is not a JSON object")
    strangers = content.keys() - set(known)
    if strangers:
        raise bad_request(f"unknown member {_quote(min(strangers).encode(errors='replace'))}")
    return content


def accepts(request: WebRequest, kind: bytes) -> bool:
    """Return whether the client asks for this media type by name."""
    for value in request.requestHeaders.getRawHeaders(b"Accept", ()):
        for part in value.lower().split(b","):
            found, *parameters = (item.strip() for item in part.split(b";"))
            if found == kind and not any(ZERO_QUALITY.fullmatch(item) for item in parameters):
                return True
    return False


def _quote(text: bytes) -> str:
    return repr(text[:40].decode("ascii", "replace"))
