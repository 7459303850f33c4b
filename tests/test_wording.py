"""Grammar of what commands print and services log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fyrehose_twisted
from fyrehose_twisted.wording import pluralize


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (1_204, "1,204 messages")]
)
def test_a_count_has_the_number_of_its_noun(count: int, text: str) -> None:
    assert pluralize(count, "message") == text


def test_an_irregular_plural_is_given_explicitly() -> None:
    assert [pluralize(count, "batch", "batches") for count in (1, 2)] == ["1 batch", "2 batches"]


def test_no_source_text_puts_a_plural_after_a_length() -> None:
    nouns = "messages|lines|events|tokens|records|seeds|packets|subscriptions"
    wrong = re.compile(rf"of \{{[a-z_.]*(seen|tried|offered|seeds):,\}} ({nouns})\b|\{{len\(\w+\)\}} tokens")
    package = Path(fyrehose_twisted.__file__).parent
    found = {str(path.relative_to(package)): wrong.findall(path.read_text()) for path in package.rglob("*.py")}
    assert not {path: texts for path, texts in found.items() if texts}
