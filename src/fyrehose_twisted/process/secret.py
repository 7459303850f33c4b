"""Shared secrets and their files."""

from __future__ import annotations

import os

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.wording import pluralize

MIN_SECRET_BYTES = 16
"""Minimum length of a shared secret, in bytes."""


def check_secret(secret: bytes) -> bytes:
    """Return ``secret``. :raises ConfigurationError: if it is too short."""
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigurationError(
            f"the secret has {pluralize(len(secret), 'byte')}; it needs at least {MIN_SECRET_BYTES}"
        )
    return secret


def read_secret(path: str) -> bytes:
    """Return the shared secret in a file, without surrounding white space.

    :raises ConfigurationError: if the file is unreadable or world-readable, or the secret is too short.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(4_096).strip()
    except OSError as error:
        raise ConfigurationError(f"secret file {path} cannot be read: {error.strerror}") from error
    if mode & 0o007:
        raise ConfigurationError(f"secret file {path} is accessible to all users; chmod 600 it")
    try:
        return check_secret(secret)
    except ConfigurationError as error:
        raise ConfigurationError(f"secret file {path}: {error}") from None
