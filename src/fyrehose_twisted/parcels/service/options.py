"""Interpretation of the options of ``twistd parcels-node``."""

from __future__ import annotations

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import parse_address
from fyrehose_twisted.net.options import ServerEndpoint
from fyrehose_twisted.process.secret import read_secret

WILDCARD_HOSTS = {4: "0.0.0.0", 6: "::"}


def parse_advertised(text: str | None, listening: ServerEndpoint) -> Address:
    """Return the address to advertise: the configured one, or the listening address.

    :raises ConfigurationError: if neither is usable.
    """
    if text is not None:
        return parse_address(text)
    address = listening.address
    if address is None or address[0] in WILDCARD_HOSTS.values():
        raise ConfigurationError(
            f"--advertise HOST:PORT is required: --listen {listening.description} does not name an address to advertise"
        )
    return address


def read_token(path: str) -> bytes:
    """Return the token in a file.

    :raises ConfigurationError: if the file cannot be read or contains no valid token.
    """
    try:
        token = read_secret(path)
    except ConfigurationError as error:
        raise ConfigurationError(f"--token-file: {error}") from None
    if not token.isascii() or any(byte <= 32 for byte in token):
        raise ConfigurationError(f"--token-file: {path} contains something other than one line of visible ASCII")
    return token
