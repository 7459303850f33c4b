"""Sessions of nodes: how long they run and stay away, drawn from distributions or replayed from a file.

A distribution is written ``exponential:MEAN``, ``pareto:SHAPE:MEAN``, ``weibull:SHAPE:MEAN``, ``constant:SECONDS``, or
``file:FILE`` with one duration per line, from which durations are drawn with replacement.

A session file has one session per line: a node, the time at which it joins, and the time at which it leaves, or ``-``
if it stays::

    # node join leave
    0 0 3600
    0 4000 -
    17 12.5 80

Times are seconds since the start of the replay. Empty lines and lines that begin with ``#`` are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import gamma, inf
from pathlib import Path
from random import Random

from fyrehose_twisted.errors import ConfigurationError

MAX_RECORDED = 1_000_000
"""Maximum number of durations or sessions in a file."""


class Durations:
    """Distribution of durations in seconds.

    :param text: description, as in the options of ``tree-experiment``.
    :param draw: function that draws a duration.
    """

    def __init__(self, text: str, draw: Callable[[Random], float]) -> None:
        self.text = text
        self._draw = draw

    def draw(self, rng: Random) -> float:
        """Return a random duration."""
        return self._draw(rng)

    @classmethod
    def exponential(cls, mean: float) -> Durations:
        """Return an exponential distribution: nodes leave at a constant rate.

        :raises ConfigurationError: if ``mean`` is not more than 0.
        """
        _check("mean", mean, 0.0)
        return cls(f"exponential:{mean:g}", lambda rng: rng.expovariate(1.0 / mean))

    @classmethod
    def pareto(cls, shape: float, mean: float) -> Durations:
        """Return a Pareto distribution: a few durations are very long, and none is shorter than a minimum.

        :param shape: more than 1; the variance is infinite up to 2.
        :raises ConfigurationError: if a parameter is out of range.
        """
        _check("shape", shape, 1.0)
        _check("mean", mean, 0.0)
        minimum = mean * (shape - 1.0) / shape
        return cls(f"pareto:{shape:g}:{mean:g}", lambda rng: minimum * rng.paretovariate(shape))

    @classmethod
    def weibull(cls, shape: float, mean: float) -> Durations:
        """Return a Weibull distribution; with a shape below 1, nodes that have run for long leave more rarely.

        :param shape: from 0.05.
        :raises ConfigurationError: if a parameter is out of range.
        """
        # Below, the mean of any feasible number of draws is far from the mean of the distribution.
        if not 0.05 <= shape < inf:
            raise ConfigurationError(f"shape={shape:g}: give a number of 0.05 or more")
        _check("mean", mean, 0.0)
        scale = mean / gamma(1.0 + 1.0 / shape)
        return cls(f"weibull:{shape:g}:{mean:g}", lambda rng: rng.weibullvariate(scale, shape))

    @classmethod
    def constant(cls, seconds: float) -> Durations:
        """Return equal durations.

        :raises ConfigurationError: if ``seconds`` is not more than 0.
        """
        _check("seconds", seconds, 0.0)
        return cls(f"constant:{seconds:g}", lambda rng: seconds)

    @classmethod
    def from_file(cls, path: str | Path) -> Durations:
        """Return the distribution of recorded durations, one per line.

        :raises ConfigurationError: if the file has no durations, too many, or a line that is none.
        :raises OSError: if the file cannot be read.
        """
        found = []
        for number, line in _lines(Path(path)):
            found.append(_parse_time(Path(path), number, line))
            if not found[-1] > 0.0:
                raise ConfigurationError(f"{path}, line {number}: {line[:40]!r}: a duration is more than 0 seconds")
        if not found:
            raise ConfigurationError(f"{path} has no durations")
        return cls(f"file:{path}", lambda rng: rng.choice(found))


def parse_durations(text: str) -> Durations:
    """Return the distribution that a text describes.

    :raises ConfigurationError: if the name or the number of parameters is wrong, or a parameter is out of range.
    :raises OSError: if a file cannot be read.
    """
    name, *rest = text.split(":")
    if name == "file" and rest:
        return Durations.from_file(text.removeprefix("file:"))
    makers: dict[str, tuple[int, Callable[..., Durations]]] = {
        "exponential": (1, Durations.exponential),
        "pareto": (2, Durations.pareto),
        "weibull": (2, Durations.weibull),
        "constant": (1, Durations.constant),
    }
    if name not in makers or len(rest) != makers[name][0]:
        raise ConfigurationError(
            f"{text!r}: give exponential:MEAN, pareto:SHAPE:MEAN, weibull:SHAPE:MEAN, constant:SECONDS or file:FILE"
        )
    try:
        numbers = [float(number) for number in rest]
    except ValueError:
        raise ConfigurationError(f"{text!r}: the parameters of {name} are numbers") from None
    return makers[name][1](*numbers)


@dataclass(frozen=True, slots=True, order=True)
class Session:
    """Time for which a node runs.

    :ivar node: number of the node.
    :ivar join: seconds from the start of the replay until the node joins.
    :ivar leave: seconds until it leaves; infinite if it stays.
    """

    node: int
    join: float
    leave: float


def read_sessions(path: str | Path, numbers: Mapping[str, int]) -> list[Session]:
    """Return the sessions in a file, by node and time.

    :param numbers: number of each node by its name.
    :raises ConfigurationError: if a line is no session, names an unknown node, or overlaps another of the same node;
        the error names the line.
    :raises OSError: if the file cannot be read.
    """
    file, found = Path(path), dict[Session, int]()
    for number, line in _lines(file):
        fields = line.split()
        if len(fields) != 3:
            raise ConfigurationError(f"{file}, line {number}: {line[:80]!r}: a session is NODE JOIN LEAVE")
        node = numbers.get(fields[0])
        if node is None:
            raise ConfigurationError(f"{file}, line {number}: there is no node {fields[0][:40]!r} in the topology")
        join = _parse_time(file, number, fields[1])
        leave = inf if fields[2] == "-" else _parse_time(file, number, fields[2])
        if not join < leave:
            raise ConfigurationError(f"{file}, line {number}: the node leaves at {leave:g} s, but joins at {join:g} s")
        found[Session(node, join, leave)] = number
    sessions = sorted(found)
    for one, other in pairwise(sessions):
        if one.node == other.node and other.join < one.leave:
            raise ConfigurationError(
                f"{file}, line {found[other]}: the node joins at {other.join:g} s, within the session of line"
                f" {found[one]}"
            )
    return sessions


def check_sessions(sessions: Iterable[Session], n: int) -> list[Session]:
    """Return sessions by node and time.

    :param n: number of nodes.
    :raises ConfigurationError: if a node does not exist, or a session ends before it begins or overlaps another.
    """
    ordered = sorted(sessions)
    for session in ordered:
        if not 0 <= session.node < n or not 0.0 <= session.join < session.leave:
            raise ConfigurationError(f"{session}: the node must exist, and leave after it joins, at 0 s or later")
    for one, other in pairwise(ordered):
        if one.node == other.node and other.join < one.leave:
            raise ConfigurationError(f"{one} and {other} overlap")
    return ordered


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines with contents, and their numbers."""
    count = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                text = line.strip()
                if text and not text.startswith("#"):
                    count += 1
                    if count > MAX_RECORDED:
                        raise ConfigurationError(f"{path} has more than {MAX_RECORDED:,} lines")
                    yield number, text
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not text: {error}") from error


def _parse_time(path: Path, number: int, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < inf:
        raise ConfigurationError(f"{path}, line {number}: {text[:40]!r} is not a number of seconds, 0 or more")
    return seconds


def _check(name: str, value: float, minimum: float) -> None:
    if not minimum < value < inf:
        raise ConfigurationError(f"{name}={value:g}: give a number of more than {minimum:g}")
