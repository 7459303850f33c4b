"""Regular expression of the filters in the site's description: JMESPath with little nesting.

JMESPath is recursive, so no regular expression describes all of it. Every filter that matches is accepted by the
service, which also accepts deeper nesting. The largest match has 31 parts.
"""

from __future__ import annotations

FUNCTIONS = frozenset(
    (
        *("abs", "avg", "ceil", "contains", "ends_with", "floor", "keys", "length", "max", "min", "not_null"),
        *("starts_with", "sum", "to_number", "type", "values"),
    )
)
"""Functions that a filter may call."""

_SPACE = r"[ \t\n\r]*"
_NAME = r'(?:[A-Za-z_][A-Za-z0-9_]*|"(?:[^"\\\u0000-\u001f]|\\["\\/bfnrt])*")'
_NUMBER = "-?[0-9]{1,9}"
_BRACKET = rf"\[(?:\*|{_NUMBER}|(?:{_NUMBER})?(?::(?:{_NUMBER})?){{1,2}})?\]"
_STEP = rf"(?:\.(?:{_NAME}|\*)|{_BRACKET})"
_JSON = r'(?:-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?|true|false|null|\[\]|\{\}|"[^"\\`\u0000-\u001f]*")'
_CONSTANT = rf"(?:'[^'\\]*'|`{_JSON}`)"
_PATH = rf"(?:(?:{_NAME}|@){_STEP}?|\*(?:\.(?:{_NAME}|\*)|\[\])?|{_BRACKET})"
_ARGUMENT = rf"(?:{_PATH}|{_CONSTANT})"
_FIELDS = rf"(?:{_NAME}(?:\.{_NAME})?|@|\*)"
_VALUE = rf"(?:{_FIELDS}|{_CONSTANT})"
_CALL = rf"(?:{'|'.join(sorted(FUNCTIONS))})\({_SPACE}(?:{_ARGUMENT}(?:{_SPACE},{_SPACE}{_VALUE})?)?{_SPACE}\)"
_COMPARED = rf"{_SPACE}(?:==|!=|<=|>=|<|>){_SPACE}"
_GROUP = rf"\({_SPACE}{_ARGUMENT}(?:{_COMPARED}{_VALUE})?{_SPACE}\)"
_FILTER = rf"\[\?{_SPACE}{_FIELDS}(?:{_COMPARED}(?:{_NAME}|{_CONSTANT}))?{_SPACE}\]"
_OPERAND = rf"(?:{_CALL}|{_PATH}{_STEP}?|{_CONSTANT})"
_TERM = rf"(?:{_GROUP}|{_PATH}?{_FILTER}|{_OPERAND}(?:{_COMPARED}{_VALUE})?)"
_CONDITION = rf"(?:!{_SPACE})?(?:{_TERM}|!{_SPACE}{_FIELDS})"

SIMPLE_FILTER = rf"^{_SPACE}{_CONDITION}(?:{_SPACE}(?:&&|\|\|?){_SPACE}{_CONDITION})?{_SPACE}$"
"""One condition or two joined ones, of paths, constants, calls and comparisons, in the JSON Schema regex dialect."""
