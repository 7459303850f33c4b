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


def read_private_file(
    name: str, path: str | os.PathLike[str], limit: int = 4_096, *, owner_only: bool = False
) -> bytes:
    """Return the content of a file with secrets.

    :param name: what the file is, for errors.
    :param limit: maximum number of bytes to read.
    :param owner_only: refuse a file that the group can access, too.
    :raises ConfigurationError: if the file cannot be read, or is accessible to other users.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(limit)
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be read: {error.strerror}") from error
    if owner_only and mode & 0o077:
        raise ConfigurationError(f"{name} is accessible to other users; chmod 600 it")
    if mode & 0o007:
        raise ConfigurationError(f"{name} is accessible to all users; chmod 600 it")
    return content


def read_secret(path: str) -> bytes:
    """Return the shared secret in a file, without surrounding white space.

    :raises ConfigurationError: if the file is unreadable or world-readable, or the secret is too short.
    """
    secret = read_private_file(f"secret file {path}", path).strip()
    try:
        return check_secret(secret)
    except ConfigurationError as error:
        raise ConfigurationError(f"secret file {path}: {error}") from None
