"""Files with the keys of sealed streams, and with the private keys of publishers."""

from __future__ import annotations

import os
from pathlib import Path

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.process.atomic_file import replace_file
from fyrehose_twisted.process.secret import read_private_file
from fyrehose_twisted.sealing.key_ring import KeyRing, format_key_ring, parse_key_ring
from fyrehose_twisted.sealing.signing import SEED_SIZE, SigningKey

MAX_FILE = 2**20
"""Bytes of a key file."""


def read_key_ring(path: str | os.PathLike[str]) -> KeyRing:
    """Return the keys in a file.

    :raises ConfigurationError: if the file cannot be read, is accessible to other users, or has an invalid line.
    """
    name = f"seal key file {os.fspath(path)}"
    content = read_private_file(name, path, MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ConfigurationError(f"{name} is longer than {MAX_FILE:,} bytes; it is another file")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{name} is not text; create a file with fyrehose key new") from None
    return parse_key_ring(text, name)


def create_key_ring(path: str | os.PathLike[str], ring: KeyRing) -> None:
    """Write keys to a new file that only its owner can read.

    :raises ConfigurationError: if the file exists or cannot be written.
    """
    _create(f"seal key file {os.fspath(path)}", path, format_key_ring(ring))


def replace_key_ring(path: str | os.PathLike[str], ring: KeyRing) -> None:
    """Replace the keys in a file at once, so that a service never reads half of them. Comments are not kept.

    The file keeps its group and mode, by which services of other users may read it.

    :raises ConfigurationError: if the file cannot be written.
    """
    place = Path(path).resolve()
    try:
        before = place.stat()
        temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
        replace_file(place, format_key_ring(ring).encode(), temporary, mode=0o600)
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(place, before.st_uid, before.st_gid)
        os.chmod(place, before.st_mode & 0o770)
    except OSError as error:
        raise ConfigurationError(f"seal key file {os.fspath(path)} cannot be written: {error.strerror}") from error


def read_signing_key(path: str | os.PathLike[str]) -> SigningKey:
    """Return the private key in a file that :func:`create_signing_key` wrote.

    :raises ConfigurationError: if the file cannot be read, is accessible to others, or does not contain a key.
    """
    name = f"signing key file {os.fspath(path)}"
    text = read_private_file(name, path, owner_only=True).strip()
    try:
        seed = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        seed = b""
    if len(seed) != SEED_SIZE:
        raise ConfigurationError(
            f"{name} does not contain {2 * SEED_SIZE} hexadecimal digits; create one with fyrehose key sign"
        )
    return SigningKey(seed)


def create_signing_key(path: str | os.PathLike[str], key: SigningKey) -> None:
    """Write a private key to a new file that only its owner can read.

    :raises ConfigurationError: if the file exists or cannot be written.
    """
    _create(f"signing key file {os.fspath(path)}", path, f"{key.seed_hex()}\n")


def _create(name: str, path: str | os.PathLike[str], content: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(content)
    except FileExistsError:
        raise ConfigurationError(f"{name} exists already; choose another name") from None
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be written: {error.strerror}") from error
