"""Filters on JSON payloads, written in JMESPath.

JMESPath has a specification and a compliance test suite, is known from the command lines of cloud providers, and always
terminates. Features that could build values larger than the record are excluded. The time of a filter is therefore
bounded by its length times that of the record, and both are limited.
"""

from __future__ import annotations

from typing import Any
from warnings import catch_warnings, simplefilter

import jmespath
from jmespath.exceptions import JMESPathError

from fyrehose_twisted.errors import LocalError
from fyrehose_twisted.query.records.pattern import FUNCTIONS
from fyrehose_twisted.query.records.record_json import NOT_JSON, RecordView

MAX_PARTS = 32
"""Operators, names and literals of a filter."""

MAX_DOCUMENT = 32_768
"""Bytes of a payload that a filter examines. Its time is proportional to its parts times these bytes, and cannot be
interrupted."""

PARTS = frozenset(
    (
        *("and_expression", "comparator", "current", "field", "filter_projection", "flatten", "function_expression"),
        *("identity", "index", "index_expression", "literal", "not_expression", "or_expression", "pipe"),
        *("projection", "slice", "subexpression", "value_projection"),
    )
)
"""Node types allowed in the syntax tree of a filter."""


class InvalidExpression(LocalError, ValueError):
    """A filter is not valid JMESPath, or uses an excluded feature."""


class Expression:
    """Filter on JSON payloads.

    :param text: JMESPath expression. A record matches unless the result is ``null``, ``false`` or empty.
    :param longest: maximum number of characters.
    :ivar failed: number of records that it could not be applied to, for example ``length`` of a number or a payload
        longer than :data:`MAX_DOCUMENT`. They do not match.
    :raises InvalidExpression: if the expression is invalid or not allowed.
    """

    def __init__(self, text: str, longest: int = 1_024) -> None:
        if len(text) > longest:
            raise InvalidExpression(f"the filter has {len(text):,} characters; the limit is {longest:,}")
        try:
            with catch_warnings():
                simplefilter("error")  # Invalid JSON in backticks would be taken as a string.
                self._compiled: Any = jmespath.compile(text)
        except (JMESPathError, ValueError, RecursionError, Warning) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidExpression(f"the filter is not JMESPath: {reason}") from None
        self.text = text
        self.failed = 0
        _check(self._compiled.parsed)

    def matches(self, item: RecordView) -> bool:
        """Return whether a record matches."""
        if len(item.payload) > MAX_DOCUMENT:
            self.failed += 1
            return False
        document = item.document
        if document is NOT_JSON:
            return False
        try:
            found = self._compiled.search(document)
        except (JMESPathError, TypeError, ValueError, ArithmeticError, RecursionError):
            self.failed += 1
            return False
        # By the rules of JMESPath, 0 is true.
        return found not in (None, False, "", [], {}) or (type(found) in (int, float))


def _check(tree: dict[str, Any]) -> None:
    waiting, parts = [tree], 0
    while waiting:
        part = waiting.pop()
        parts += 1
        kind = part["type"]
        if kind not in PARTS:
            raise InvalidExpression(f"a filter must not contain a {kind.replace('_', ' ')}; it can only select records")
        if kind == "function_expression" and part["value"] not in FUNCTIONS:
            raise InvalidExpression(f"a filter must not call {part['value']}; allowed: {', '.join(sorted(FUNCTIONS))}")
        if kind != "slice":  # Its children are numbers.
            waiting += part["children"]
    if parts > MAX_PARTS:
        raise InvalidExpression(f"the filter has {parts} operators, names and literals; the limit is {MAX_PARTS}")
