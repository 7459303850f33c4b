"""Signed streams: only the holder of a private key can publish packets (Ed25519, RFC 8032).

Document 003 mentions a key of the senders without defining it; this scheme is the library's own. The key of a signed
stream is :data:`KEY_PREFIX` and a digest of the public key, so every node can verify packets without configuration. A
packet is the public key, the signature and the content. The signature covers one packet number of one stream.
"""

from __future__ import annotations

import os
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge
from fyrehose_twisted.freenet.wire.location import KEY_SIZE
from fyrehose_twisted.freenet.wire.messages import MAX_DATA

KEY_PREFIX = b"\xed\x25\x51\x9f"
"""Prefix of the keys of signed streams. One random key in 2**32 has it, too."""
PUBLIC_KEY_SIZE = 32
SIGNATURE_SIZE = 64
SIGNATURE_OVERHEAD = PUBLIC_KEY_SIZE + SIGNATURE_SIZE
"""Bytes that a signature adds to a packet."""
MAX_SIGNED_CONTENT = MAX_DATA - SIGNATURE_OVERHEAD
"""Maximum content of a signed packet in bytes."""
_STREAM_LABEL = b"fyrehose freenet stream\0"
_PACKET_LABEL = b"fyrehose freenet packet\0"
_NAME_LABEL = b"fyrehose freenet name\0"


def is_signed(key: bytes) -> bool:
    """Return True if packets of a stream must be signed."""
    return key.startswith(KEY_PREFIX)


def can_verify() -> bool:
    """Return True if the package that verifies signatures is installed."""
    return find_spec("cryptography") is not None


def strip_signature(key: bytes, data: bytes) -> bytes:
    """Return the content of a packet, without the signature."""
    return data[SIGNATURE_OVERHEAD:] if is_signed(key) else data


def verify(key: bytes, number: int, data: bytes) -> bool:
    """Return True if a packet of a signed stream is from the holder of its key.

    :raises ConfigurationError: if signatures cannot be verified here.
    """
    public, signature = data[:PUBLIC_KEY_SIZE], data[PUBLIC_KEY_SIZE:SIGNATURE_OVERHEAD]
    if len(data) < SIGNATURE_OVERHEAD or stream_key(public) != key:
        return False
    ed25519 = _load_ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(
            signature, _signed_bytes(key, number, data[SIGNATURE_OVERHEAD:])
        )
    except (InvalidSignature, ValueError):
        return False
    return True


def stream_key(public: bytes) -> bytes:
    """Return the stream key that belongs to a public key."""
    return KEY_PREFIX + sha256(_STREAM_LABEL + public).digest()[: KEY_SIZE - len(KEY_PREFIX)]


def named_key(name: str) -> bytes:
    """Return the key of a named, unsigned stream."""
    digest = sha256(_NAME_LABEL + name.encode()).digest()
    while is_signed(digest):
        digest = sha256(digest).digest()
    return digest[:KEY_SIZE]


def parse_key(text: str) -> bytes:
    """Return the key that a text stands for: 40 hexadecimal digits, or ``name:`` and a name.

    :raises ConfigurationError: if the text is neither.
    """
    kind, _, name = text.partition(":")
    try:
        if kind == "name" and name:
            return named_key(name)
        key = bytes.fromhex(text)
    except ValueError:  # Raised by a name that is not UTF-8, too.
        key = b""
    if len(key) != KEY_SIZE:
        raise ConfigurationError(f"{text[:60]!r} is not a key; give {2 * KEY_SIZE} hexadecimal digits, or name:NAME")
    return key


class SigningKey:
    """Private key of a signed stream.

    :param seed: 32 secret bytes.
    :ivar key: key of the stream.
    :raises ConfigurationError: if the seed has another size, or the package for signatures is not installed.
    """

    def __init__(self, seed: bytes) -> None:
        ed25519 = _load_ed25519()
        if len(seed) != PUBLIC_KEY_SIZE:
            raise ConfigurationError(f"a signing key has {PUBLIC_KEY_SIZE} bytes, not {len(seed)}")
        self._seed = seed
        self._private: Any = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
        self._public: bytes = self._private.public_key().public_bytes_raw()
        self.key = stream_key(self._public)

    def __repr__(self) -> str:
        return f"<SigningKey of {self.key.hex()}>"

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new random key."""
        return cls(os.urandom(PUBLIC_KEY_SIZE))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SigningKey:
        """Return the key in a file that :meth:`write` created.

        :raises ConfigurationError: if the file cannot be read, is accessible to others, or does not contain a key.
        """
        try:
            with open(path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(4_096).strip()
        except OSError as error:
            raise ConfigurationError(f"key file {os.fspath(path)} cannot be read: {error.strerror}") from error
        if mode & 0o077:
            raise ConfigurationError(f"key file {os.fspath(path)} is accessible to other users; chmod 600 it")
        try:
            seed = bytes.fromhex(text.decode("ascii"))
        except ValueError:
            seed = b""
        if len(seed) != PUBLIC_KEY_SIZE:
            digits = f"{2 * PUBLIC_KEY_SIZE} hexadecimal digits"
            raise ConfigurationError(f"key file {os.fspath(path)} does not contain {digits}")
        return cls(seed)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file that only its owner can read.

        :raises ConfigurationError: if the file exists or cannot be written.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._seed.hex().encode() + b"\n")
        except FileExistsError:
            raise ConfigurationError(f"key file {os.fspath(path)} exists already; choose another name") from None
        except OSError as error:
            raise ConfigurationError(f"key file {os.fspath(path)} cannot be written: {error.strerror}") from error

    def sign(self, number: int, content: bytes) -> bytes:
        """Return a signed packet.

        :param number: packet number that the signature is valid for.
        :raises MessageTooLarge: if ``content`` exceeds :data:`MAX_SIGNED_CONTENT`.
        """
        if len(content) > MAX_SIGNED_CONTENT:
            raise MessageTooLarge(len(content), MAX_SIGNED_CONTENT)
        signature: bytes = self._private.sign(_signed_bytes(self.key, number, content))
        return self._public + signature + content


def _signed_bytes(key: bytes, number: int, content: bytes) -> bytes:
    return _PACKET_LABEL + key + number.to_bytes(8, "big") + content


def _load_ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigurationError("signed streams require a package: pip install 'fyrehose_twisted[keys]'") from None
    return ed25519
