"""Starts a program as systemd does: with sockets that are open already, and confined as a unit says.

It is run with one argument, a JSON object: ``command``, ``sockets`` (descriptors by name), ``families`` and ``filter``
(what the unit says in RestrictAddressFamilies= and SystemCallFilter=; without them nothing is confined).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import subprocess
import sys
from errno import EAFNOSUPPORT, EPERM

NO_NEW_PRIVILEGES, REFUSE_WRITE_AND_EXECUTE = 38, 65
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
EQUAL = 4


class Argument(ctypes.Structure):
    """C structure ``scmp_arg_cmp``."""

    _fields_ = (
        ("number", ctypes.c_uint),
        ("compare", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def calls(group: str) -> set[str]:
    """Return the system calls of a group such as @system-service; the name of a call stands for itself."""
    if not group.startswith("@"):
        return {group}
    shown = subprocess.run(["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True)
    found: set[str] = set()
    for line in map(str.strip, shown.stdout.splitlines()[1:]):
        if line.startswith("@"):
            found |= calls(line)
        elif line and not line.startswith("#"):
            found.add(line)
    return found


def confine(filters: list[str], families: list[str]) -> None:
    """Restrict this process and its children to these system calls."""
    allowed: set[str] = calls("@default")
    for one in filters:
        for group in one.removeprefix("~").split():
            allowed = allowed - calls(group) if one.startswith("~") else allowed | calls(group)
    seccomp, libc = ctypes.CDLL("libseccomp.so.2"), ctypes.CDLL(None, use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(REFUSE | EPERM))
    add = seccomp.seccomp_rule_add_array
    for name in sorted(allowed - {"socket"}):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # The others belong to other architectures.
            assert add(rules, ALLOW, number, 0, None) == 0, name
    opening = seccomp.seccomp_syscall_resolve_name(b"socket")
    for family in socket.AddressFamily:
        allow = family.name in families
        wanted = Argument(0, EQUAL, family, 0)
        assert add(rules, ALLOW if allow else REFUSE | EAFNOSUPPORT, opening, 1, ctypes.byref(wanted)) == 0, family
    # Kernels before 6.3 lack the second one, for which systemd adds further rules.
    assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0, ctypes.get_errno()
    libc.prctl(REFUSE_WRITE_AND_EXECUTE, 1, 0, 0, 0)
    assert seccomp.seccomp_load(rules) == 0


def main() -> None:
    """Replace this process by the program."""
    unit = json.loads(sys.argv[1])
    spared = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in unit["sockets"].values()]
    for number, descriptor in enumerate(spared, 3):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if spared:
        names = ":".join(unit["sockets"])
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(spared)), LISTEN_FDNAMES=names)
    if unit["filter"]:
        confine(unit["filter"], unit["families"])
    os.execv(unit["command"][0], unit["command"])


main()
