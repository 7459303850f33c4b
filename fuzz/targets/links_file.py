"""Links files of each kind."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fuzz.checks import attempt, check_size
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.links_file import read_links, write_links

NAMES = ("links.txt", "links.csv", "links.txt.gz", "links.csv.gz", "links.txt.gz")
LONGEST = 8_192
"""More than the digits of a number that Python parses."""

_DIRECTORY = tempfile.TemporaryDirectory(prefix="fuzz-")


def seeds() -> Iterable[bytes]:
    """Return files with a prefix byte for their kind and compression."""
    words = b"# A comment.\nnode a 0.25\nnode b\na b\nb c\n"
    columns = b'source,target\n0,1\n1,"2"\n#,3\n'
    numbers = b"10 2\n2 7\n7 10\n"
    for text in (words, numbers):
        yield b"\0" + text
        yield b"\x02" + gzip.compress(text, mtime=0)
        yield b"\x04" + text
    yield b"\0" + b"9" * 4_400 + b" 1\n"
    yield b"\x01" + columns
    yield b"\x03" + gzip.compress(columns, mtime=0)


def one(data: bytes) -> None:
    """Read a file; the network survives a round trip."""
    kind = data[0] % len(NAMES) if data else 0
    path = Path(_DIRECTORY.name) / NAMES[kind]
    path.write_bytes(gzip.compress(data[1:], 1) if kind == 4 else data[1:])
    links, error = attempt(lambda: read_links(path), ConfigurationError)
    if error is not None or kind in (2, 3):
        return
    check_size(links, len(data), factor=24)
    assert len(set(links.names)) == len(links.names)
    assert not links.edges.size or int(links.edges.max()) < len(links.names)
    if len(links.locations) == len(links.names):
        again = Path(_DIRECTORY.name) / "again.txt"
        places = np.array([links.locations[number] for number in range(len(links.names))])
        _, refused = attempt(lambda: write_links(again, links.names, places, links.edges), ConfigurationError)
        if refused is None:
            assert repr(read_links(again)) == repr(links)
