"""One-line error messages for failures within Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fyrehose_twisted._exports import renamed
from fyrehose_twisted.errors import FyrehoseError

_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION_LINE = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$", re.DOTALL)
_JAVA = re.compile(r"^(?:Caused by: |: )?((?:[a-z_]\w*\.)+[A-Z][\w$.]*)(?:: (.*))?$")
_CONDITION = re.compile(r"^\s*\[[A-Z][A-Z0-9_.]+\] ")
_STATE = re.compile(r" ?SQLSTATE: \w{5};?")
_LOST_TASK = re.compile(r"^Job aborted due to stage failure: .*\(TID \d+\) \([^)]*\): ", re.DOTALL)
_TERMINATED = re.compile(r"^.*? terminated with exception: ", re.DOTALL)
_WRITING = re.compile(r"Task failed while writing rows to (?:file:)?(\S+?)\.(?:\s|$)")

_NO_PACKAGE = "No module named 'fyrehose_twisted'"
_NO_SPACE = "No space left on device"
_JVM_DIED = (
    "Answer from Java side is empty",
    "Error while sending or receiving",
    "Error while obtaining a new communication",
)


def error_line(error: BaseException) -> str | None:
    """Return a one-line message for the user; ``None`` for an error that the user cannot fix."""
    if isinstance(error, FyrehoseError):
        return _collapse_spaces(str(error))
    if isinstance(error, OSError):
        return _os_error_text(error)
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
        return innermost_cause(str(error)) or type(error).__name__
    return None


def innermost_cause(text: str) -> str:
    """Extract the innermost cause from Spark's text of a failure, on one line.

    A cause raised by this package is returned verbatim. Other causes are prefixed with their class name.
    """
    if _NO_SPACE in text and (_TRACEBACK not in text or "java." in text):
        where = _WRITING.search(text)
        return f"{_NO_SPACE}{f': {where[1]}' if where else ''}"
    if "java.lang.OutOfMemoryError" in text:
        return "Spark has not enough memory (java.lang.OutOfMemoryError); give it more: --conf spark.driver.memory=8g"
    if _NO_PACKAGE in text:
        return (
            "the Python of Spark's workers lacks fyrehose_twisted: set PYSPARK_PYTHON to one that has it on every"
            " worker, or ship it as docs/howto/cluster.md says"
        )
    if "Python worker exited unexpectedly" in text:
        return "a Python worker of Spark was killed, perhaps for want of memory; see --spark-log"
    if any(said in text for said in _JVM_DIED):
        return "Spark's Java has ended unexpectedly, perhaps for want of memory; see --spark-log"
    if _TRACEBACK in text:
        return _python_cause(text.rpartition(_TRACEBACK)[2])
    if "\n\tat " in text:
        return _java_cause(text)
    return _spark_message(text)


def _os_error_text(error: OSError) -> str:
    if error.strerror is None:
        return _collapse_spaces(str(error))
    return f"{error.filename or 'input or output'}: {error.strerror}"


def _python_cause(text: str) -> str:
    """Return the error at the end of the last traceback; ``text`` follows the traceback's first line."""
    lines = text.splitlines()
    raised: list[str] = []
    for line in lines:
        if raised and (line.startswith(("\tat ", "=== ", " SQLSTATE: ", "Driver stacktrace:")) or not line.strip()):
            break
        if raised or (line and not line[0].isspace()):
            raised.append(line)
    match = _EXCEPTION_LINE.match("\n".join(raised))
    if match is None:
        return _collapse_spaces(" ".join(raised))
    name, said = match[1], match[2] or ""
    if name.startswith("py4j.") and "\n: " in said:
        return _java_cause(text[text.index("\n: ") + 1 :])
    if name.startswith("pyspark."):
        return _spark_message(said)
    if name.startswith("fyrehose_twisted.") and said:
        return _collapse_spaces(said)
    if said.startswith("[Errno "):
        return _collapse_spaces(said.partition("] ")[2])
    return _collapse_spaces(f"{name.rpartition('.')[2]}: {said}" if said else name)


def _java_cause(text: str) -> str:
    """Return the last cause that has a message."""
    found = ""
    for line in text.splitlines():
        match = _JAVA.match(line)
        if match is None or not match[2]:
            continue
        name = match[1].rpartition(".")[2]
        said = _LOST_TASK.sub("", match[2])
        inner = _JAVA.match(said)
        if inner is not None and inner[2]:
            name, said = inner[1].rpartition(".")[2], inner[2]
        found = said if name in ("SparkException", "IOException") else f"{name}: {said}"
    return _spark_message(found or text)


def _spark_message(text: str) -> str:
    """Return the first line of a Spark message without its condition and SQLSTATE."""
    text = _TERMINATED.sub("", text) if text.startswith("[STREAM_FAILED]") else text
    for line in text.splitlines():
        line = _collapse_spaces(_STATE.sub("", _CONDITION.sub("", line))).removesuffix(";")
        if line:
            return line
    return ""


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"one_line": "error_line"})
