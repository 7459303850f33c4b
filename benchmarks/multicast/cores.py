"""Cores of the sender and of everything else, and the end of their processes with the benchmark."""

from __future__ import annotations

import ctypes
import os
import signal

CORES = sorted(os.sched_getaffinity(0))
"""Cores of this process at its start; it binds itself to one of them later."""
SENDER_CORE, OTHER_CORE = CORES[0], CORES[-1]


PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)  # Loaded before a fork.


def prepare_sender() -> None:
    """Bind this new process to the core of the sender, and let it end with its parent."""
    os.sched_setaffinity(0, {SENDER_CORE})
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def prepare_receivers() -> None:
    """Do the same on the other core."""
    bind_other()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def bind_other() -> None:
    """Bind this process to the core of publisher and subscribers."""
    os.sched_setaffinity(0, {OTHER_CORE})
