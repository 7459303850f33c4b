"""Bearer tokens and the clients that they belong to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.process.secret import read_private_file

MIN_TOKEN_LENGTH = 16
"""Minimum number of characters of a token in a file."""
MAX_FILE = 2**20
"""Bytes of a tokens file."""

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_TOKEN = re.compile(r"[!-~]{16,256}")


class Tokens:
    """Accepted tokens, each with the name of its client.

    :param tokens: token by client name.
    :raises ConfigurationError: if there is no token, or one is empty.
    """

    def __init__(self, tokens: Mapping[str, bytes]) -> None:
        if not tokens or not all(tokens.values()):
            raise ConfigurationError("an empty token would admit every client")
        # Digests have equal lengths, so that comparisons do not leak the length of a token.
        self._digests = {name: sha256(token).digest() for name, token in tokens.items()}

    def name_of(self, token: bytes) -> str | None:
        """Return the client name of a token, or ``None`` if it is unknown."""
        given = sha256(token).digest()
        found = None
        for name, digest in self._digests.items():  # Compare with all of them, for constant time.
            if compare_digest(given, digest):
                found = name
        return found

    def __len__(self) -> int:
        return len(self._digests)


def shared_token(token: bytes) -> Tokens:
    """Return tokens with one token that all clients share.

    :raises ConfigurationError: if it is empty.
    """
    return Tokens({"token": token})


def read_tokens(path: str) -> Tokens:
    """Read a tokens file: on each line a client name, a space and a token. ``#`` begins a comment.

    :raises ConfigurationError: if the file cannot be read, is accessible to other users, or has an invalid line.
    """
    text = read_private_file(f"tokens file {path}", path, MAX_FILE + 1)
    if len(text) > MAX_FILE:
        raise ConfigurationError(f"tokens file {path} is longer than {MAX_FILE:,} bytes")
    tokens: dict[str, bytes] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        # Errors do not quote the line, as it is secret.
        if len(words) != 2 or not _NAME.fullmatch(words[0]):
            raise ConfigurationError(f"tokens file {path}, line {number}: expected a name and a token")
        name, token = words
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError(
                f"tokens file {path}, line {number}: a token has {MIN_TOKEN_LENGTH} to 256 characters of "
                "printable ASCII"
            )
        if name in tokens:
            raise ConfigurationError(f"tokens file {path}, line {number}: {name} already has a token")
        tokens[name] = token.encode()
    if not tokens:
        raise ConfigurationError(f"tokens file {path} has no token")
    return Tokens(tokens)
