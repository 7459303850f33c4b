"""Validation of queries, headers and bodies of requests."""

from __future__ import annotations

import json
import re
from typing import Any

from fyrehose_twisted.web.channel import ZERO_QUALITY, WebRequest
from fyrehose_twisted.web.response import bad_request

MAX_NUMBER = 2**63 - 1
"""Highest number in a query or header."""

MAX_DEPTH = 64
"""Maximum nesting of JSON, within the limits of common parsers."""

PRINTABLE = re.compile(rb"[!-~](?:[ -~]{0,62}[!-~])?")
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def query_params(request: WebRequest, *known: bytes) -> dict[bytes, bytes]:
    """Return the query parameters.

    :raises HttpError: if a parameter is not ``known`` or is repeated.
    """
    args: dict[bytes, list[bytes]] = request.args or {}
    if args:
        unknown = args.keys() - set(known)
        if unknown:
            raise bad_request(f"unknown parameter {_quote(min(unknown))}; known: {b', '.join(known).decode()}")
        for name, values in args.items():
            if len(values) > 1:
                raise bad_request(f"{name.decode()} is given {len(values)} times; give it once")
    return {name: values[0] for name, values in args.items()}


def parse_number(text: bytes | None, name: str, lowest: int = 1, highest: int = MAX_NUMBER) -> int | None:
    """Parse a decimal number; return ``None`` for ``None``.

    :raises HttpError: if it is not a number in range.
    """
    if text is None:
        return None
    # int() would also accept spaces, signs, underscores, digits of other scripts, and very long input.
    if re.fullmatch(rb"[0-9]{1,19}", text) and lowest <= (value := int(text)) <= highest:
        return value
    raise bad_request(f"{name} must be a number from {lowest} to {highest}, not {_quote(text)}")


def parse_flag(text: bytes | None, name: str) -> bool:
    """Parse ``0`` or ``1``; return ``False`` for ``None``.

    :raises HttpError: if it is something else.
    """
    if text not in (None, b"0", b"1"):
        raise bad_request(f"{name} must be 0 or 1, not {_quote(text)}")
    return text == b"1"


def single_header(request: WebRequest, name: bytes) -> bytes | None:
    """Return the value of a header, or ``None`` if it is absent.

    :raises HttpError: if the header is repeated.
    """
    values = request.requestHeaders.getRawHeaders(name)
    if values is None:
        return None
    if len(values) > 1:
        raise bad_request(f"{name.decode()} is given {len(values)} times; give it once")
    value: bytes = values[0]
    return value


def token_header(request: WebRequest, name: bytes) -> str:
    """Return a header of 1 to 64 printable characters, or ``""`` if it is absent.

    :raises HttpError: if the header is repeated or has another form.
    """
    value = single_header(request, name)
    if value is None:
        return ""
    if PRINTABLE.fullmatch(value) is None:
        raise bad_request(f"{name.decode()} must have 1 to 64 characters of printable ASCII")
    return value.decode("ascii")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Reused, as json.loads would create a decoder for each call.
_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def parse_json(data: bytes) -> Any:
    """Parse UTF-8 JSON.

    :raises ValueError: if it is invalid or nested too deeply.
    """
    text = data.decode("utf-8")
    try:
        content = _decode(text)
    except RecursionError:
        content, is_too_deep = None, True
    else:
        is_too_deep = _is_too_deep(text)
    if is_too_deep:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return content


def _is_too_deep(text: str) -> bool:
    # Call this only with valid JSON: on an unterminated string the pattern takes quadratic time.
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
    """Parse the body as a JSON object.

    :raises HttpError: if it is not an object, or has members that are not ``known``.
    """
    try:
        content = parse_json(request.content.read())
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise bad_request("the body is not a JSON object")
    unknown = content.keys() - set(known)
    if unknown:
        raise bad_request(f"unknown member {_quote(min(unknown).encode(errors='replace'))}")
    return content


def accepts(request: WebRequest, kind: bytes) -> bool:
    """Return whether the ``Accept`` header names this media type explicitly."""
    for value in request.requestHeaders.getRawHeaders(b"Accept", ()):
        for part in value.lower().split(b","):
            found, *parameters = (item.strip() for item in part.split(b";"))
            if found == kind and not any(ZERO_QUALITY.fullmatch(item) for item in parameters):
                return True
    return False


def _quote(text: bytes) -> str:
    return repr(text[:40].decode("ascii", "replace"))
