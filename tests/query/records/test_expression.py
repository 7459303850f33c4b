"""Record filters: allowed syntax and bounded cost."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.query.records.expression import MAX_DOCUMENT, MAX_PARTS, PARTS, Expression, InvalidExpression
from fyrehose_twisted.query.records.pattern import FUNCTIONS, SIMPLE_FILTER
from fyrehose_twisted.query.records.record_json import RecordView


def item(document: Any) -> RecordView:
    return RecordView(b"", 0, 1, 1, 0, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("text", "document", "wanted"),
    [
        ("a", {"a": 1}, True),
        ("a", {"a": 0}, True),
        ("a", {"a": 0.0}, True),
        ("a", {"a": False}, False),
        ("a", {"a": None}, False),
        ("a", {"a": ""}, False),
        ("a", {"a": []}, False),
        ("a", {"a": {}}, False),
        ("a", {}, False),
        ("a", [1], False),
        ("@", 5, True),
        ("a == 'x' && b > `2`", {"a": "x", "b": 3}, True),
        ("a == 'x' && b > `2`", {"a": "x", "b": "3"}, False),
        ("!a", {}, True),
        ("items[?price > `10`]", {"items": [{"price": 5}, {"price": 11}]}, True),
        ("items[?price > `10`]", {"items": [{"price": 5}]}, False),
        ("starts_with(name, 'web-')", {"name": "web-1"}, True),
        ("starts_with(name, 'web-')", {"name": 1}, False),
        ("length(tags) > `1`", {"tags": ["a", "b"]}, True),
        ("avg(a) > `1`", {"a": []}, False),
    ],
)
def test_filter_matches_documents_for_which_it_is_true(text: str, document: Any, wanted: bool) -> None:
    assert Expression(text).matches(item(document)) is wanted


def test_filter_does_not_match_payloads_that_are_not_json() -> None:
    assert not Expression("!a").matches(RecordView(b"", 0, 1, 1, 0, b"no json"))


def test_evaluation_errors_of_a_filter_are_counted() -> None:
    expression = Expression("length(a) > `1`")
    assert [expression.matches(item(document)) for document in ({"a": 1}, {"a": [1, 2]}, {})] == [False, True, False]
    assert expression.failed == 2


def nested(text: str, times: int) -> str:
    for _ in range(times):
        text = f"to_string({text})"
    return text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a ==",
        "[@,@]|[@,@]|[@,@]",
        "{a:@,b:@}",
        nested("@", 20),
        "join('x', a)",
        "map(&a, b)",
        "sort_by(a, &b)",
        "merge(@, @)",
        "nothing(a)",
        "`[1,2`",
        "(" * 5_000,
        "a" * 2_000,
        " || ".join("a" * 70),
    ],
)
def test_forbidden_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression(text)


def test_every_node_type_of_jmespath_is_known() -> None:
    # New node types of the language have to be reviewed before they are allowed.
    expressions = ("a", "a.b", "a[0]", "a[1:2]", "a[]", "*", "a[*]", "a[?b]", "!a", "a&&b", "a||b", "a|b", "@", "`1`")
    found: set[str] = set()
    waiting = [jmespath.compile(text).parsed for text in (*expressions, "a==b", "abs(a)")]
    while waiting:
        part = waiting.pop()
        found.add(part["type"])
        waiting += [child for child in part["children"] if isinstance(child, dict)]
    assert found == PARTS


def test_allowed_filter_functions_exist_in_jmespath() -> None:
    assert set(jmespath.functions.Functions.FUNCTION_TABLE) >= FUNCTIONS


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
steps = st.sampled_from(
    ["a", "*", "[]", "[*]", "[0]", "[?a]", "[?@ == @]", "[::2]", "values(@)", "keys(@)", "not_null(a, @)", "@"]
)


@given(documents, st.lists(steps, min_size=1, max_size=5))  # Six parts may exceed the limit of an expression.
def test_filter_result_is_never_larger_than_the_record(document: Any, path: list[str]) -> None:
    text = " | ".join(path)
    expression = Expression(text)
    expression.matches(item(document))
    try:
        found = jmespath.search(text, document)
    except jmespath.exceptions.JMESPathError:
        return
    assert len(json.dumps(found)) <= len(json.dumps(document)) + 4


def test_longest_allowed_filter_is_evaluated() -> None:
    document = {"a": [list(range(100))] * 10}
    for step, count in product(("*", "[]", "[*]"), (1, 4)):
        Expression(" | ".join(["a", *[step] * count])).matches(item(document))
    assert MAX_PARTS == 32


def test_oversize_document_does_not_match() -> None:
    expression = Expression("a")
    assert expression.matches(RecordView(b"", 0, 1, 1, 0, b'{"a": "%s"}' % (b"x" * (MAX_DOCUMENT - 9))))
    assert not expression.matches(RecordView(b"", 0, 1, 1, 0, b'{"a": "%s"}' % (b"x" * (MAX_DOCUMENT - 8))))
    assert expression.failed == 1


@given(st.from_regex(SIMPLE_FILTER))
def test_every_filter_described_by_openapi_is_accepted(text: str) -> None:
    Expression(text, len(text))


def test_short_text_is_a_filter_exactly_if_openapi_describes_it() -> None:
    described = re.compile(SIMPLE_FILTER)
    taken = set()
    texts = [
        "".join(signs)
        for count in range(4)
        for signs in product("aZ_0-.*@!&|<>=()[]{}:,'\"`\\ \t\u00e9#", repeat=count)
    ]
    for text in texts:
        try:
            taken.add(Expression(text).text)
        except InvalidExpression:
            continue
    assert taken == {text for text in texts if described.match(text)}
    assert {"a", "@", "*", "!a", "a.a", "a|a", "[0]", "''"} < taken
