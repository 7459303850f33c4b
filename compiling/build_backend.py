"""Build backend: that of setuptools, which needs mypy as well if FYREHOSE_COMPILE is 1."""

from __future__ import annotations

import configparser
import os
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

COMPILING = os.environ.get("FYREHOSE_COMPILE") == "1"


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what a build requires. mypy needs the types of all that the modules import."""
    if not COMPILING:
        return build_meta.get_requires_for_build_wheel(config_settings)
    settings = configparser.ConfigParser()
    settings.read("setup.cfg")
    lists = settings["options"]["install_requires"], settings["options.extras_require"]["compile"]
    return [line for text in lists for line in text.splitlines() if line and not line.startswith("#")]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Refuse to compile in place, where an extension module would be imported instead of the edited source."""
    if COMPILING:
        raise SystemExit("FYREHOSE_COMPILE=1 cannot be combined with an editable install; use make compiled")
    return build_meta.get_requires_for_build_editable(config_settings)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build an editable wheel, never a compiled one."""
    get_requires_for_build_editable(config_settings)  # pip does not call it without build isolation.
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
