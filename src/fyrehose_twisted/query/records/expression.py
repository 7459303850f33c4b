"""Filters on JSON payloads, written in JMESPath.

JMESPath has a specification and a suite of tests that its implementations pass, people know it from the command lines
of cloud providers, and it always comes to an end. What is left out here is what could make something larger than the
record that it looks at: so a filter takes no longer than its own length times that of the record, and both are bounded.
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
"""Bytes of a payload that a filter looks at: what one takes is its parts times the bytes, and nobody else has a turn
meanwhile."""

PARTS = frozenset(
    (
        *("and_expression", "comparator", "current", "field", "filter_projection", "flatten", "function_expression"),
        *("identity", "index", "index_expression", "literal", "not_expression", "or_expression", "pipe"),
        *("projection", "slice", "subexpression", "value_projection"),
    )
)
"""Of what the tree of a filter may consist."""


class InvalidExpression(LocalError, ValueError):
    """A filter is not JMESPath, or does what filters may not."""


class Expression:
    """A filter.

    :param text: JMESPath; a record is wanted if it gives anything but ``null``, ``false``, or what is empty.
    :param longest: characters that it may have.
    :ivar failed: how often it did not fit a record, as where ``length`` is asked of a number, or one is longer than
        :data:`MAX_DOCUMENT`; such are not wanted.
    :raises BadExpression: if it is none that may be used.
    """

    def __init__(self, text: str, longest: int = 1_024) -> None:
        if len(text) > longest:
            raise InvalidExpression(f"the filter has {len(text):,} characters; it may have {longest:,}")
        try:
            with catch_warnings():
                simplefilter("error")  # What is no JSON between backticks would be taken for a string.
                self._compiled: Any = jmespath.compile(text)
        except (JMESPathError, ValueError, RecursionError, Warning) as error:
            first = str(error).partition("\n")[0]
            raise InvalidExpression(f"the filter is not JMESPath: {first}") from None
        self.text = text
        self.failed = 0
        _check(self._compiled.parsed)

    def matches(self, item: RecordView) -> bool:
        """Return whether a record is wanted."""
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
        # As JMESPath has it: 0 is true.
        return found not in (None, False, "", [], {}) or (type(found) in (int, float))


def _check(tree: dict[str, Any]) -> None:
    waiting, parts = [tree], 0
    while waiting:
        part = waiting.pop()
        parts += 1
        kind = part["type"]
        if kind not in PARTS:
            raise InvalidExpression(
                f"a filter may have no {kind.replace('_', ' ')}: it only says which records are wanted"
            )
        if kind == "function_expression" and part["value"] not in FUNCTIONS:
            raise InvalidExpression(
                f"a filter may not call {part['value']}; it may call {', '.join(sorted(FUNCTIONS))}"
            )
        if kind != "slice":  # Its children are numbers.
            waiting += part["children"]
    if parts > MAX_PARTS:
        raise InvalidExpression(f"the filter has {parts} operators, names and literals; it may have {MAX_PARTS}")
