"""Password files of ``twistd hydra-node``."""

from __future__ import annotations

import os

from fyrehose_twisted.errors import ConfigurationError


def read_password(option: str, path: str) -> str:
    """Return the password in a file, without surrounding white space.

    :raises ConfigurationError: if the file cannot be read, is accessible to other users, or has no valid password.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            password = file.read(4_096).strip()
    except OSError as error:
        raise ConfigurationError(f"{option}: {path} cannot be read: {error.strerror}") from error
    if mode & 0o007:
        raise ConfigurationError(f"{option}: {path} is accessible to all users; chmod 600 it")
    try:
        text = password.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > 400 or not text.isprintable():
        raise ConfigurationError(f"{option}: {path} must contain one line with a password")
    return text
