"""Password files of ``twistd hydra-node``."""

from __future__ import annotations

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.process.secret import read_private_file


def read_password(option: str, path: str) -> str:
    """Return the password in a file, without surrounding white space.

    :raises ConfigurationError: if the file cannot be read, is accessible to other users, or has no valid password.
    """
    try:
        text = read_private_file(f"{option}: {path}", path).strip().decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > 400 or not text.isprintable():
        raise ConfigurationError(f"{option}: {path} must contain one line with a password")
    return text
