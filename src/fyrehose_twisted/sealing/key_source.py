"""Key file of a running program, which is read again when keys are rotated."""

from __future__ import annotations

import os
from random import SystemRandom

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sealing.key_file import read_key_ring, read_signing_key
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.sealing.sealer import PayloadSealer


class KeySource:
    """Key file, and the sealer and opener that were made from it.

    :param path: key file.
    :param signing_key_path: file with the private key that signs what the sealer seals; ``None`` for no signatures.
    :param allow_plain: let the opener deliver payloads that are not sealed.
    :ivar sealer: sealer of the payloads to publish.
    :ivar opener: opener of the payloads to deliver.
    :raises ConfigurationError: if a file is invalid, or the package for ciphers is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        signing_key_path: str | os.PathLike[str] | None = None,
        allow_plain: bool = False,
    ) -> None:
        self.path = path
        self._ring = read_key_ring(path)
        signing_key = None if signing_key_path is None else read_signing_key(signing_key_path)
        self.sealer = PayloadSealer(self._ring, SystemRandom(), signing_key=signing_key)
        self.opener = PayloadOpener(self._ring, allow_plain=allow_plain)

    @property
    def stream(self) -> str:
        """URI of the stream."""
        return self._ring.stream

    def read(self) -> KeyRing:
        """Return the keys that the file has now.

        :raises ConfigurationError: if the file is invalid, or is now for another stream.
        """
        ring = read_key_ring(self.path)
        if ring.stream != self.stream:
            raise ConfigurationError(
                f"seal key file {os.fspath(self.path)} is for {ring.stream} now, and was for {self.stream} at the"
                " start; restart to use it"
            )
        return ring

    def apply(self, ring: KeyRing) -> list[str]:
        """Use other keys from now on. Return what has changed, without secrets."""
        changes = self._ring.differences(ring)
        self._ring = self.sealer.ring = self.opener.ring = ring
        return changes
