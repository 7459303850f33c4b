"""Files named by options: secrets, tokens, passwords, keys, webhooks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fuzz.checks import attempt, check_size
from fyrehose_twisted.errors import ConfigurationError, StateFileError
from fyrehose_twisted.freenet.wire.signing import SigningKey
from fyrehose_twisted.hydra.irc.password import read_password
from fyrehose_twisted.parcels.service.options import read_token
from fyrehose_twisted.parcels.web.webhooks.file import CallbackFile
from fyrehose_twisted.process.secret import read_secret
from fyrehose_twisted.sealing.key_file import read_key_ring, read_signing_key
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.signing import SigningKey as PublisherKey
from fyrehose_twisted.web.tokens import read_tokens

_DIRECTORY = tempfile.TemporaryDirectory(prefix="fuzz-")
_CALLBACK = (
    b'{"format":"fyrehose parcels callbacks 1","callbacks":[{"id":"0123456789abcdef","url":"http://x/","next":1,'
    b'"secret":null,"suspended":false}]}'
)
_KEY_FILE = b"# keys\nstream fyrehose://x\nkey aes-256-gcm %b # id\npublisher anna %b\n" % (b"ab" * 32, b"cd" * 32)
WAYS: tuple[tuple[Callable[[str], Any], tuple[bytes, ...]], ...] = (
    (read_secret, (b"sixteen bytes and a few\n", b"short")),
    (read_token, (b"sixteen-bytes-and-a-few\n", b"sixteen bytes and a few\n")),
    (lambda path: read_password("--password-file", path), (b"secret\n", b"\xff")),
    (read_tokens, (b"# who\nivan sixteen-bytes-and-a-few\nboris another-token-of-16\n", b"ivan x\n")),
    (SigningKey.read, (b"00" * 32 + b"\n",)),
    (read_signing_key, (b"00" * 32 + b"\n",)),
    (read_key_ring, (_KEY_FILE, _KEY_FILE[:100], b"stream x\n" * 2)),
    (lambda path: CallbackFile(path).load(), (_CALLBACK, b"[" * 2_000)),
)
"""Parsers and example contents."""


def seeds() -> Iterable[bytes]:
    """Return files with a prefix byte for the parser."""
    return [bytes((way,)) + content for way, (_, contents) in enumerate(WAYS) for content in contents]


def one(data: bytes) -> None:
    """Read a file."""
    if data:
        path = Path(_DIRECTORY.name) / "file"
        path.write_bytes(data[1:])
        path.chmod(0o600)
        read, _ = WAYS[data[0] % len(WAYS)]
        content, error = attempt(lambda: read(str(path)), ConfigurationError, StateFileError)
        if error is None and not isinstance(content, SigningKey | PublisherKey | KeyRing):
            check_size(content, len(data))
