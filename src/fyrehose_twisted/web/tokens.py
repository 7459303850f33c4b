"""Bearer tokens, and whose they are."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

from fyrehose_twisted.errors import ConfigurationError

MIN_TOKEN_LENGTH = 16
"""Characters that a token in a file must have at least."""
MAX_FILE = 2**20
"""Bytes of a file with tokens."""

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_TOKEN = re.compile(r"[!-~]{16,256}")


class Tokens:
    """Which tokens there are, and the name of the client that has each.

    :param tokens: token by name.
    :raises ConfigurationError: if there is none, or one is empty.
    """

    def __init__(self, tokens: Mapping[str, bytes]) -> None:
        if not tokens or not all(tokens.values()):
            raise ConfigurationError("an empty token would let everybody in")
        # Digests have the same length, so that not even that of a token is told.
        self._digests = {name: sha256(token).digest() for name, token in tokens.items()}

    def name_of(self, token: bytes) -> str | None:
        """Return whose token it is, ``None`` if nobody's."""
        given = sha256(token).digest()
        found = None
        for name, digest in self._digests.items():  # All of them: where it is found takes no less time.
            if compare_digest(given, digest):
                found = name
        return found

    def __len__(self) -> int:
        return len(self._digests)


def shared_token(token: bytes) -> Tokens:
    """Return tokens of which there is one, which all clients share. :raises ConfigurationError: if it is empty."""
    return Tokens({"token": token})


def read_tokens(path: str) -> Tokens:
    """Return the tokens in a file: on each line the name of a client, a space, and its token; ``#`` begins a comment.

    :raises ConfigurationError: if the file cannot be read, can be read by everybody, or has a line that is none.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigurationError(f"tokens file {path} cannot be read: {error.strerror}") from error
    if mode & 0o007:
        raise ConfigurationError(f"tokens file {path} is open to everybody; chmod 600 it")
    if len(text) > MAX_FILE:
        raise ConfigurationError(f"tokens file {path} is longer than {MAX_FILE:,} bytes")
    tokens: dict[str, bytes] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        # What the line holds is not told: it is secret.
        if len(words) != 2 or not _NAME.fullmatch(words[0]):
            raise ConfigurationError(f"tokens file {path}, line {number}: it is not a name and a token")
        name, token = words
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError(
                f"tokens file {path}, line {number}: a token has {MIN_TOKEN_LENGTH} to 256 characters of "
                "printable ASCII"
            )
        if name in tokens:
            raise ConfigurationError(f"tokens file {path}, line {number}: {name} has a token already")
        tokens[name] = token.encode()
    if not tokens:
        raise ConfigurationError(f"tokens file {path} has no token")
    return Tokens(tokens)
