"""Text files of links and nodes.

A line is a link, given as two names separated by blanks::

    # A comment.
    node a 0.25
    node b
    a b
    b c

A line that begins with ``node`` declares a node, which may have no links, and optionally its location. A file with the
suffix ``.csv`` has two columns and no such lines; its first line may be a heading. A further suffix ``.gz`` means that
the file is compressed.

If all names are whole numbers, nodes are numbered in their order, otherwise in the order of their first appearance.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.adjacency import Locations
from fyrehose_twisted.freenet.wire.location import is_location

_HEADINGS = ({"source", "target"}, {"from", "to"}, {"a", "b"})
_NODE = "node"

MAX_NUMBER_DIGITS = 4_000
"""Maximum number of digits of a name that counts as a number."""


@dataclass(frozen=True, slots=True)
class LinksFile:
    """Contents of a links file.

    :ivar names: names of all nodes, in the order of their numbers.
    :ivar edges: links as rows of two node numbers, including repeated ones.
    :ivar locations: locations that the file declares, by node number.
    """

    names: tuple[str, ...]
    edges: NDArray[np.int64]
    locations: dict[int, float]


def read_links(path: Path) -> LinksFile:
    """Read a links file.

    :raises ConfigurationError: if a line is neither a link nor a node, if a link leads from a node to itself, or if
        the file is not text.
    :raises OSError: if the file cannot be read.
    """
    in_columns, compressed = _detect_format(path)
    try:
        data = gzip.decompress(path.read_bytes()) if compressed else path.read_bytes()
        text = data.decode()
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigurationError(f"{path} is not {'compressed ' if compressed else ''}text: {error}") from error
    parser = _LinksParser(path)
    try:
        for number, fields in _split_columns(text) if in_columns else _split_words(text):
            parser.add(number, fields, may_be_node=not in_columns)
    except csv.Error as error:
        raise ConfigurationError(f"{path} has no columns that can be read: {error}") from error
    return parser.result()


def write_links(path: Path, names: Sequence[str], locations: Locations, edges: NDArray[np.integer]) -> None:
    """Write a links file that :func:`read_links` reads back unchanged.

    :raises ConfigurationError: if a name is ambiguous in the format, or the path is that of a CSV file, which cannot
        hold locations.
    :raises OSError: if the file cannot be written.
    """
    in_columns, compressed = _detect_format(path)
    if in_columns:
        raise ConfigurationError(f"{path}: a CSV file cannot hold locations; use another suffix, such as x.txt")
    for name in names:
        if name.split() != [name] or name.startswith("#") or name == _NODE:
            raise ConfigurationError(f"node name {name!r}: it must not have blanks, begin with # or be {_NODE!r}")
    lines = [f"{_NODE} {name} {location!r}\n" for name, location in zip(names, locations.tolist(), strict=True)]
    lines += [f"{names[a]} {names[b]}\n" for a, b in edges.tolist()]
    data = "".join(lines).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if compressed else data)


def number_names(edges: Iterable[tuple[str, str]]) -> LinksFile:
    """Number the named nodes of links.

    :raises ConfigurationError: if a link leads from a node to itself.
    """
    parser = _LinksParser(None)
    for number, edge in enumerate(edges, 1):
        parser.add(number, edge, may_be_node=False)
    return parser.result()


class _LinksParser:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._numbers: dict[str, int] = {}
        self._ends: list[int] = []
        self._locations: dict[int, float] = {}

    def add(self, line: int, fields: Sequence[str], *, may_be_node: bool) -> None:
        if may_be_node and fields[0] == _NODE:
            self._add_node(line, fields)
        elif len(fields) != 2 or not all(fields):
            raise self._error(line, f"{len(fields)} fields, {' '.join(fields)[:80]!r}: a link is two names")
        elif fields[0] == fields[1]:
            raise self._error(line, f"{fields[0]!r} is linked to itself; leave the link out")
        else:
            self._ends += (self._number(fields[0]), self._number(fields[1]))

    def result(self) -> LinksFile:
        names = tuple(self._numbers)
        edges = np.array(self._ends, np.int64).reshape(-1, 2)
        if not all(map(is_number, names)):
            return LinksFile(names, edges, self._locations)
        order = sorted(range(len(names)), key=lambda number: int(names[number]))
        places = np.empty(len(names), np.int64)
        places[order] = np.arange(len(names))
        locations = {int(places[number]): location for number, location in self._locations.items()}
        return LinksFile(tuple(names[number] for number in order), places[edges], locations)

    def _add_node(self, line: int, fields: Sequence[str]) -> None:
        if not 2 <= len(fields) <= 3:
            raise self._error(line, f"{' '.join(fields)[:80]!r}: after {_NODE!r} come a name and perhaps a location")
        number = self._number(fields[1])
        if len(fields) == 3:
            try:
                location = float(fields[2])
            except ValueError:
                location = -1.0
            if not is_location(location):
                raise self._error(line, f"location {fields[2]!r}: it goes from 0 up to, but not including, 1")
            if self._locations.setdefault(number, location) != location:
                raise self._error(line, f"{fields[1]!r} is at {self._locations[number]} already, not at {location}")

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _error(self, line: int, problem: str) -> ConfigurationError:
        where = f"link {line}" if self._path is None else f"{self._path}, line {line}"
        return ConfigurationError(f"{where}: {problem}")


def is_number(name: str) -> bool:
    """Return True if a name counts as a whole number."""
    # Python refuses to convert strings with very many digits.
    return name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) <= MAX_NUMBER_DIGITS


def _detect_format(path: Path) -> tuple[bool, bool]:
    """Return whether a file has columns, and whether it is compressed."""
    compressed = path.suffix.lower() == ".gz"
    name = path.with_suffix("") if compressed else path
    return name.suffix.lower() == ".csv", compressed


def _split_words(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if fields and not fields[0].startswith("#"):
            yield number, fields


def _split_columns(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text))
    for index, row in enumerate(reader):
        fields = [field.strip() for field in row]
        heading = index == 0 and {field.lower() for field in fields} in _HEADINGS
        if fields and not heading and not fields[0].startswith("#"):
            yield reader.line_num, fields
