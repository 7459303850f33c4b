from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from suite.shares import DURATIONS, recorded, shares

FILES = st.lists(st.sampled_from([f"tests/test_{number}.py" for number in range(40)]), unique=True)
SECONDS = st.dictionaries(st.sampled_from([f"tests/test_{number}.py" for number in range(40)]), st.floats(0, 100))


@given(FILES, SECONDS, st.integers(1, 8))
def test_every_test_file_is_in_exactly_one_share(files: list[str], seconds: dict[str, float], count: int) -> None:
    found = shares(files, seconds, count)
    assert len(found) == count
    assert sorted(file for share in found for file in share) == sorted(files)


@given(FILES, SECONDS, st.integers(1, 8))
def test_shares_do_not_depend_on_the_order_of_files(files: list[str], seconds: dict[str, float], count: int) -> None:
    assert shares(files, seconds, count) == shares(files[::-1], seconds, count)


@given(FILES, SECONDS, st.integers(1, 8))
def test_shares_differ_by_one_file_at_most(files: list[str], seconds: dict[str, float], count: int) -> None:
    seconds |= dict.fromkeys(files, 1.0) | seconds
    loads = [sum(seconds[file] for file in share) for share in shares(files, seconds, count)]
    assert max(loads) - min(loads) <= max((seconds[file] for file in files), default=0.0) + 1e-9


def test_a_file_without_a_recorded_duration_counts_as_average() -> None:
    assert shares(["a", "b", "c", "new"], {"a": 3.0, "b": 1.0, "c": 2.0}, 2) == [["a", "b"], ["c", "new"]]


def test_files_with_recorded_durations_exist() -> None:
    root = DURATIONS.parents[2]
    missing = {file for suite in recorded().values() for file in suite if not (root / file).exists()}
    assert not missing, "python -m suite.run --record writes them anew"
