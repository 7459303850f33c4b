"""Boot id of the machine, for the detection of restarts."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> bytes:
    """Return 16 bytes that change with every boot; random bytes if the kernel has no boot id.

    Random bytes make every start look like one after a power failure, which is safe.
    """
    try:
        return uuid.UUID(_BOOT_ID_PATH.read_text().strip()).bytes
    except (OSError, ValueError):
        return os.urandom(16)
