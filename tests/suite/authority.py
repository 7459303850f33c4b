"""Certificate authority of a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Issued(NamedTuple):
    """Files of a certificate and of its key."""

    certificate: Path
    key: Path


class Authority:
    """Authority that signs certificates for IP addresses.

    :ivar path: file with its certificate.
    """

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.path = directory / f"{name}.pem"
        self._directory = directory
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._builder(name, self._key).sign(self._key, hashes.SHA256())
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, address: str = "127.0.0.1") -> Issued:
        """Issue a certificate for an IP address."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        made = self._builder(name, key).add_extension(alternative, critical=False).sign(self._key, hashes.SHA256())
        files = Issued(self._directory / f"{self._name}-{name}.pem", self._directory / f"{self._name}-{name}.key")
        files.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        encryption = serialization.NoEncryption()
        files.key.touch(0o600)
        files.key.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return files

    def _builder(self, name: str, key: Any) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == self._name, path_length=None), critical=True)
        )
