"""Options with the keys of sealed payloads, and those on MACs."""

from __future__ import annotations

import argparse
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.config import MacPolicy
from fyrehose_twisted.process.sighup import ReloadOnHup
from fyrehose_twisted.process.terminal import print_error
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.key_source import KeySource


def keys_from_options(options: argparse.Namespace) -> KeySource | None:
    """Return the keys of ``--seal-key-file``, if given.

    :raises ConfigurationError: if a file is invalid, or an option that needs it is given without it.
    """
    signing, allow_plain = getattr(options, "sign_key_file", None), getattr(options, "allow_plain", False)
    if options.seal_key_file is not None:
        return KeySource(options.seal_key_file, signing_key_path=signing, allow_plain=allow_plain)
    for option, value in (("--sign-key-file", signing), ("--allow-plain", allow_plain)):
        if value:
            raise ConfigurationError(f"{option} requires --seal-key-file FILE")
    return None


def mac_from_options(options: argparse.Namespace) -> MacPolicy:
    """Return the use of MACs."""
    return MacPolicy.REQUIRE if options.require_mac else MacPolicy.OFFER


class KeyReload:
    """Context manager that reads a key file again on each SIGHUP, and prints what is wrong with it.

    :param keys: keys; without any, SIGHUP is left alone.
    """

    def __init__(self, keys: KeySource | None, reactor: Any) -> None:
        self._keys = keys
        self._reload = None if keys is None else ReloadOnHup(self._read, keys.apply, reactor)

    def __enter__(self) -> None:
        if self._reload is not None:
            self._reload.start()

    def __exit__(self, *raised: object) -> None:
        if self._reload is not None:
            self._reload.stop()

    def _read(self) -> KeyRing:
        assert self._keys is not None
        try:
            return self._keys.read()
        except ConfigurationError as error:
            print_error(error)
            raise
