"""Values of options on the command line."""

from __future__ import annotations

import argparse
import math


def seconds(text: str) -> float:
    """Return a number of seconds. :raises argparse.ArgumentTypeError: if ``text`` is none."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None


def positive(text: str) -> float:
    """Return a number of seconds above 0. :raises argparse.ArgumentTypeError: if ``text`` is none."""
    value = seconds(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0")
    return value


def count(text: str) -> int:
    """Return a whole number above 0. :raises argparse.ArgumentTypeError: if ``text`` is none."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
