"""Hypothesis profiles, which set the number of examples of a property test.

``dev`` is the default; ``--hypothesis-profile=ci`` has ten times as many examples. Both draw the same examples in every
run, so that results are reproducible. ``--hypothesis-profile=soak`` draws new ones.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

# Durations depend on the machine more than on the test.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
FEW = 20


def soak_examples(seconds: float) -> int:
    """Return the number of examples for a soak; one of each property test takes about a second."""
    return max(FEW, round(seconds))


settings.register_profile("dev", max_examples=FEW, derandomize=True, **UNTIMED)
settings.register_profile("ci", max_examples=200, derandomize=True, **UNTIMED)
settings.register_profile(
    "soak", max_examples=soak_examples(float(os.environ.get("SOAK_SECONDS", "60"))), print_blob=True, **UNTIMED
)
settings.load_profile("dev")
