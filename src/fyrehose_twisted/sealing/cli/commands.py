"""Commands of ``fyrehose key``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.sealing.key_file import (
    create_key_ring,
    create_signing_key,
    read_key_ring,
    read_signing_key,
    replace_key_ring,
)
from fyrehose_twisted.sealing.key_ring import KeyRing, check_publisher_name, check_stream_uri
from fyrehose_twisted.sealing.keys import KEY_SIZE, SealKey, check_available
from fyrehose_twisted.sealing.signing import PUBLIC_KEY_SIZE, SigningKey


def run_command(name: str, options: argparse.Namespace) -> int:
    """Run a command and return its exit status."""
    try:
        for line in _COMMANDS[name](options):
            print(line)
    except FyrehoseError as error:
        print(f"fyrehose: {error}", file=sys.stderr)
        return 1
    return 0


def _new(options: argparse.Namespace) -> Iterable[str]:
    check_available()
    ring = KeyRing(check_stream_uri(options.stream), [_new_key(options.algorithm)])
    create_key_ring(options.file, ring)
    return [f"{ring.sealing_key.id.hex()} seals {ring.stream}"]


def _add(options: argparse.Namespace) -> Iterable[str]:
    ring, key = read_key_ring(options.file), _new_key(options.algorithm)
    _replace(options, ring, keys=[*ring.keys, key])
    return [f"{key.id.hex()} opens; once all subscribers have it: fyrehose key use {options.file} {key.id.hex()}"]


def _use(options: argparse.Namespace) -> Iterable[str]:
    ring = read_key_ring(options.file)
    key = _find(ring, options)
    _replace(options, ring, keys=[key, *(other for other in ring.keys if other != key)])
    return [f"{key.id.hex()} seals"]


def _drop(options: argparse.Namespace) -> Iterable[str]:
    ring = read_key_ring(options.file)
    key = _find(ring, options)
    if len(ring.keys) == 1:
        raise ConfigurationError(f"{options.id} is the only key of {options.file}; add another one first")
    if key == ring.sealing_key:
        raise ConfigurationError(f"{options.id} seals; let another key seal first, with fyrehose key use")
    _replace(options, ring, keys=[other for other in ring.keys if other != key])
    return [f"{key.id.hex()} is removed"]


def _show(options: argparse.Namespace) -> Iterable[str]:
    ring = read_key_ring(options.file)
    yield ring.stream
    for key in ring.keys:
        role = "seals and opens" if key == ring.sealing_key else "opens"
        yield f"key {key.id.hex()} {key.algorithm} {role}"
    for name, public in ring.publishers.items():
        yield f"publisher {name} {public.hex()}"


def _sign(options: argparse.Namespace) -> Iterable[str]:
    if os.path.exists(options.file):
        return [read_signing_key(options.file).public.hex()]
    key = SigningKey.generate()
    create_signing_key(options.file, key)
    return [key.public.hex()]


def _trust(options: argparse.Namespace) -> Iterable[str]:
    ring, name = read_key_ring(options.file), check_publisher_name(options.name)
    try:
        public = bytes.fromhex(options.public)
    except ValueError:
        public = b""
    if len(public) != PUBLIC_KEY_SIZE:
        raise ConfigurationError(
            f"{options.public[:64]!r} is not a public key of {2 * PUBLIC_KEY_SIZE} hexadecimal digits;"
            " fyrehose key sign prints it"
        )
    _replace(options, ring, publishers=ring.publishers | {name: public})
    return [f"{name} is trusted"]


def _distrust(options: argparse.Namespace) -> Iterable[str]:
    ring = read_key_ring(options.file)
    if options.name not in ring.publishers:
        raise ConfigurationError(f"{options.file} has no publisher {options.name[:64]!r}")
    left = {name: public for name, public in ring.publishers.items() if name != options.name}
    _replace(options, ring, publishers=left)
    if not left:
        return [f"{options.name} was the last one; now every holder of a key is trusted"]
    return [f"{options.name} is not trusted any more"]


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], Iterable[str]]] = {
    "new": _new,
    "add": _add,
    "use": _use,
    "drop": _drop,
    "show": _show,
    "sign": _sign,
    "trust": _trust,
    "distrust": _distrust,
}


def _new_key(algorithm: str) -> SealKey:
    return SealKey(algorithm, os.urandom(KEY_SIZE))


def _find(ring: KeyRing, options: argparse.Namespace) -> SealKey:
    for key in ring.keys:
        if key.id.hex() == options.id.lower():
            return key
    known = ", ".join(key.id.hex() for key in ring.keys)
    raise ConfigurationError(f"{options.file} has no key {options.id[:40]!r}; it has {known}")


def _replace(
    options: argparse.Namespace,
    ring: KeyRing,
    keys: Iterable[SealKey] | None = None,
    publishers: Mapping[str, bytes] | None = None,
) -> None:
    """Write the ring with other keys or publishers to its file."""
    changed = KeyRing(
        ring.stream,
        ring.keys if keys is None else keys,
        ring.publishers if publishers is None else publishers,
    )
    replace_key_ring(options.file, changed)
