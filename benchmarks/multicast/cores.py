"""Cores of the sender, and of everything else."""

from __future__ import annotations

import os

CORES = sorted(os.sched_getaffinity(0))
"""Cores of this process at its start; it binds itself to one of them later."""
SENDER_CORE, OTHER_CORE = CORES[0], CORES[-1]


def bind_sender() -> None:
    """Bind this process to the core of the sender."""
    os.sched_setaffinity(0, {SENDER_CORE})


def bind_other() -> None:
    """Bind this process to the core of publisher and subscribers."""
    os.sched_setaffinity(0, {OTHER_CORE})
