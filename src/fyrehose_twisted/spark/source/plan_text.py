"""Columns that a query needs, and how often it reads them, from the text of Spark's plan.

Spark Connect gives no other access to the plan.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_ANALYZED, _OPTIMIZED, _PHYSICAL = (
    f"== {name} Plan ==\n" for name in ("Analyzed Logical", "Optimized Logical", "Physical")
)
_LINE = re.compile(r"(?P<indent>(?:(?:[ :] {2})*[+:]- )?)(?P<name>[A-Z]\w*)(?P<rest>.*)")
_ATTRIBUTE = re.compile(r"(\w+)#(\d+)")
_TRUNCATED = re.compile(r"\.\.\. \d+ more fields")

_REFERENCE = re.compile(r"CTERelationRef (\d+)")

_SOURCE, _CACHED = "RelationV2", "InMemoryRelation"
_WIDTH = 3
"""Characters of indentation per level of the tree."""


class _Line(NamedTuple):
    level: int
    name: str
    rest: str


def needed_columns_in_text(explained: str) -> set[str] | None:
    """Return the columns of Python sources that a query uses; ``None`` if it may use all, or the text is unclear.

    :param explained: text of the extended plan.
    """
    plan = explained.partition(_OPTIMIZED)[2].partition(_PHYSICAL)[0].rstrip("\n")
    # Spark omits parts of long expressions.
    if not plan or _TRUNCATED.search(plan):
        return None
    needed: set[str] | None = None
    above: list[_Line] = []
    for number, text in enumerate(plan.split("\n")):
        found = _LINE.fullmatch(text)
        # A literal with a line break continues on a line that is no node.
        if found is None or (number > 0) != bool(found["indent"]):
            return None
        line = _Line(len(found["indent"]) // _WIDTH, found["name"], found["rest"])
        while above and above[-1].level >= line.level:
            above.pop()
        if line.name == _CACHED:
            return None
        if line.name == _SOURCE:
            used = _used_columns(line, above)
            if used is None:
                return None
            needed = used | (needed or set())
        above.append(line)
    return needed


def may_resemble_plan(query: str) -> bool:
    """Return whether literals of a query may look like nodes of a plan, so that the text of its plan is ambiguous."""
    return "+- " in query or ":- " in query


def analyzed_plan(explained: str) -> str:
    """Return the text of the analyzed plan.

    :param explained: text of the extended plan.
    """
    return explained.partition(_ANALYZED)[2].partition(_OPTIMIZED)[0]


def is_read_once(analyzed: str) -> bool:
    """Return whether a query reads one Python source, at one place.

    :param analyzed: text of the analyzed plan. Later, Spark merges some reads, after it has pushed their filters.
    """
    references = Counter(_REFERENCE.findall(analyzed))
    # A command must not run again. A loop reads its tables again and again.
    if any(name in analyzed for name in ("CommandResult", "UnionLoop")):
        return False
    return analyzed.count(f"{_SOURCE}[") == 1 and max(references.values(), default=1) == 1


def _used_columns(source: _Line, above: list[_Line]) -> set[str] | None:
    names = {number: name for name, number in _ATTRIBUTE.findall(source.rest)}
    found: set[str] = set()
    level = source.level
    for line in reversed(above):
        # Spark indents the root of a subquery by two levels. Its columns are all used.
        if line.level != level - 1:
            return None
        found |= {names[number] for _, number in _ATTRIBUTE.findall(line.rest) if number in names}
        match line.name:
            case "Project" | "Aggregate":
                return found  # These nodes pass on no other columns.
            case "Filter":
                level = line.level
            case _:
                return None
    return None
