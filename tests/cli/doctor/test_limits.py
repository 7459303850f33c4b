from __future__ import annotations

import pytest

from fyrehose_twisted.cli.doctor.finding import Level
from fyrehose_twisted.cli.doctor.limits import assess_open_files


@pytest.mark.parametrize(
    ("soft", "hard", "level", "said", "advised"),
    [
        (None, None, Level.OK, "any number", None),
        (1_024, 4_096, Level.OK, "1,024, and raise that to 4,096", None),
        (256, None, Level.WARN, "raise that to any number", "ulimit -n 1024,"),
        (256, 512, Level.WARN, "raise that to 512", "as root: raise the hard limit to 1024,"),
        (191, 4_096, Level.WRONG, "191", "ulimit -n 1024,"),
    ],
)
def test_the_limit_of_open_files_is_assessed(
    soft: int | None, hard: int | None, level: Level, said: str, advised: str | None
) -> None:
    found = assess_open_files(soft, hard)
    assert found.level == level
    assert said in found.found
    assert (found.advice is None) if advised is None else str(found.advice).startswith(advised)
