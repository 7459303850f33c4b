"""Certificates of one end of a TLS connection, and of the authorities that it trusts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.process.secret import read_private_file

MAX_FILE = 2**20
"""Bytes read of a file of certificates."""

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Identity:
    """Files that identify one end of a connection, and those that it trusts.

    :ivar certificate: PEM file with the certificate of this end, and any intermediate ones after it.
    :ivar key: PEM file with its private key, which other users cannot read.
    :ivar authority: PEM file with the certificates that the other end's must be signed by.
    """

    certificate: str
    key: str
    authority: str

    def server_context(self) -> Any:
        """Return a context factory for the accepting end, which demands a certificate.

        :raises ConfigurationError: if a file is missing or has no such content, or TLS is not installed.
        """
        ssl = _import_ssl()
        own, chain = self._load(ssl)
        return ssl.CertificateOptions(
            privateKey=own.privateKey.original,
            certificate=own.original,
            extraCertChain=[one.original for one in chain],
            trustRoot=self._trusted(ssl),
        )

    def client_context(self, host: str) -> Any:
        """Return a context factory for the connecting end, which checks that the other certificate is for ``host``.

        :raises ConfigurationError: as :meth:`server_context` does.
        """
        ssl = _import_ssl()
        own, chain = self._load(ssl)
        return ssl.optionsForClientTLS(
            host,
            trustRoot=self._trusted(ssl),
            clientCertificate=own,
            extraCertificateOptions={"extraCertChain": [one.original for one in chain]} if chain else None,
        )

    def _load(self, ssl: Any) -> tuple[Any, list[Any]]:
        first, *others = self._certificates(ssl, "certificate", self.certificate)
        secret = read_private_file(f"key {self.key}", self.key, MAX_FILE)
        try:
            key = ssl.KeyPair.load(secret, 1)  # FILETYPE_PEM
            own = ssl.PrivateCertificate.fromCertificateAndKeyPair(first, key)
        except Exception as error:
            raise ConfigurationError(f"key {self.key} is not the unencrypted PEM key of {self.certificate}") from error
        return own, others

    def _trusted(self, ssl: Any) -> Any:
        return ssl.trustRootFromCertificates(self._certificates(ssl, "authority", self.authority))

    def _certificates(self, ssl: Any, name: str, path: str) -> list[Any]:
        try:
            with open(path, "rb") as file:
                blocks = _BLOCK.findall(file.read(MAX_FILE))
        except OSError as error:
            raise ConfigurationError(f"{name} {path} cannot be read: {error.strerror}") from error
        try:
            found = [ssl.Certificate.loadPEM(block) for block in blocks]
        except Exception as error:
            raise ConfigurationError(f"{name} {path} has a damaged certificate: {error}") from error
        if not found:
            raise ConfigurationError(f"{name} {path} has no certificate in PEM format")
        return found


def _import_ssl() -> Any:
    # Without service_identity, Twisted would hardly check for which host a certificate is.
    missing = [name for name in ("OpenSSL", "service_identity") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"TLS needs {missing[0]}, which is not installed: pip install 'twisted[tls]'")
    from twisted.internet import ssl

    return ssl
