"""What tests of every kind share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Program = Callable[[str, str], Path]


@pytest.fixture
def program() -> Program:
    """Return the path of a system program, given its name and the Debian package that has it.

    Without it the test is skipped, or fails in CI, where everything has to be there.
    """

    def find(name: str, package: str) -> Path:
        path = shutil.which(name)
        if path is not None:
            return Path(path)
        missing = f"{name} is missing: apt install {package}"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)

    return find
