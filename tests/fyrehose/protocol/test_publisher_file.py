from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError, StateFileError
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.protocol.publisher_file import PAGE, PublisherState, chain_checksum

STREAM = "127.0.0.1:2323"
MESSAGES = [b"message %d" % number for number in range(20)]


def checksum_of(count: int) -> int:
    checksum = 0
    for message in MESSAGES[:count]:
        checksum = chain_checksum(checksum, message)
    return checksum


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_a_restarted_publisher_keeps_its_id_and_position(path: Path) -> None:
    first = PublisherState(path, STREAM)
    assert (first.position, first.checksum) == (0, 0)
    first.sent(MESSAGES[:5])
    first.published([0, 1, 2], 0.0)
    first.close()
    again = PublisherState(path, STREAM)
    assert (again.publisher, again.position, again.checksum) == (first.publisher, 3, checksum_of(3))
    again.close()
    other = PublisherState(path.with_name("other"), STREAM)
    assert other.publisher != first.publisher
    other.close()
    assert sorted(one.name for one in path.parent.iterdir()) == ["other", "state"]


@given(st.permutations(range(10)), st.integers(0, 10), st.integers(1, 4))
def test_the_position_never_passes_an_unpublished_message(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], count: int, group: int
) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    state = PublisherState(path, STREAM)
    state.sent(MESSAGES[:10])
    published: set[int] = set()
    for low in range(0, count, group):
        some = order[low : min(low + group, count)]
        state.published(some, 0.0)
        published.update(some)
        expected = next(number for number in range(11) if number not in published)
        assert state.position == expected
        # The state that a killed process leaves, without a close.
        content = path.read_bytes()
        left = path.with_name("left")
        left.write_bytes(content)
        found = PublisherState(left, STREAM)
        assert (found.position, found.checksum) == (expected, checksum_of(expected))
        found.close()
    state.close()


@pytest.mark.parametrize("torn", range(16))
def test_a_torn_write_leaves_the_old_or_the_new_position(path: Path, torn: int) -> None:
    state = PublisherState(path, STREAM)
    state.sent(MESSAGES)
    state.published([0], 0.0)
    before = path.read_bytes()
    state.published([1], 0.0)
    after = path.read_bytes()
    state.close()
    (begin,) = {offset // 8 * 8 for offset in range(PAGE) if before[offset] != after[offset]} - {32, 48}
    path.write_bytes(after[: begin + torn] + before[begin + torn :])
    found = PublisherState(path, STREAM)
    assert found.position in (1, 2)
    assert found.checksum == checksum_of(found.position)
    found.close()


def test_a_publisher_file_in_use_is_refused(path: Path) -> None:
    state = PublisherState(path, STREAM)
    with pytest.raises(StateFileError, match="in use by another publisher, and two with one id would lose messages"):
        PublisherState(path, STREAM)
    state.close()
    PublisherState(path, STREAM).close()


@pytest.mark.parametrize("offset", [0, 9, 16, 56, 60, PAGE - 1])
def test_a_damaged_publisher_file_is_refused(path: Path, offset: int) -> None:
    PublisherState(path, STREAM).close()
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    with pytest.raises(StateFileError, match="not usable"):
        PublisherState(path, STREAM)


@pytest.mark.parametrize("content", [b"", b"text", bytes(PAGE), bytes(PAGE + 1)])
def test_a_file_of_another_kind_is_refused_and_not_changed(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StateFileError, match="not written by a publisher"):
        PublisherState(path, STREAM)
    assert path.read_bytes() == content


def test_a_publisher_file_of_another_stream_is_refused(path: Path) -> None:
    PublisherState(path, STREAM).close()
    with pytest.raises(StateFileError, match=r"belongs to 127.0.0.1:2323, not to 127.0.0.1:9"):
        PublisherState(path, "127.0.0.1:9")
    with pytest.raises(StateFileError, match="name of 1025 bytes"):
        PublisherState(path.with_name("long"), "x" * 1_025)


def test_no_message_may_follow_an_unpublished_one_in_a_publisher_file(path: Path) -> None:
    state = PublisherState(path, STREAM)
    state.sent(MESSAGES[:4])
    state.check()
    state.failed(2)
    state.published([0, 1, 3], 0.0)
    assert state.position == 2
    with pytest.raises(StateFileError, match=r"message 2 of state file .* was not published, and none may follow"):
        state.check()
    state.close()


def test_a_publisher_file_requires_envelopes(path: Path) -> None:
    state = PublisherState(path, STREAM)
    with pytest.raises(ConfigurationError, match="needs envelopes"):
        PublisherProtocol(ClientConfig(outbox=OutboxConfig(raw=True)), state=state)
    state.close()


def test_a_publisher_file_of_one_backbone_fits_its_group(path: Path) -> None:
    with closing(PublisherState(path, "10.0.0.1:2323,10.0.0.2:2323")) as state:
        publisher = state.publisher
    with closing(PublisherState(path, "10.0.0.3:2323,10.0.0.2:2323")) as state:
        assert state.publisher == publisher
    with pytest.raises(StateFileError, match=r"belongs to 10.0.0.1:2323,10.0.0.2:2323, not to 10.0.0.3:2323"):
        PublisherState(path, "10.0.0.3:2323")
