from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.retention import parse_age
from fyrehose_twisted.journal.tier.entry import ContentDigest, TierEntry, decode
from fyrehose_twisted.journal.tier.location import displayed, object_path, object_url, parse_tier_url


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a/b",
        "s3://bucket",
        "s3://bucket/a?endpoint_override=127.0.0.1:9000&scheme=http&region=eu-west-1",
        "gs://bucket/a",
        "abfss://container@account.dfs.core.windows.net/a",
        "file:///var/tier",
        "fsspec+sftp://host/a",
    ],
)
def test_urls_without_credentials_are_accepted(url: str) -> None:
    assert parse_tier_url(url) == url
    assert parse_tier_url(url.replace("/a", "/a/")).startswith(url[:6])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bucket/a", "must have the form"),
        ("/var/tier", "must have the form"),
        ("s3:bucket", "must have the form"),
        ("s3:///a", "names no bucket"),
        ("file://host/a", "file:///DIR"),
        ("s3://key:hush@bucket/a", "has credentials"),
        ("s3://hush@bucket/a", "has credentials"),
        ("gs://hush@bucket/a", "has credentials"),
        ("abfss://container:hush@account/a", "has credentials"),
        ("abfss://container/a", "must have the form abfss://CONTAINER@ACCOUNT"),
        ("abfss://container@account/a", "must have the form abfss://CONTAINER@ACCOUNT"),
        ("s3://bucket/a?secret_key=hush", "invalid parameter 'secret_key'"),
        ("s3://bucket/a?endpoint_override=u:hush@h", "invalid parameter 'endpoint_override'"),
        ("gs://bucket/a?access_token=hush", "gs takes none"),
        ("s3://bucket/a#b", "fragment"),
    ],
)
def test_other_urls_are_refused_without_repeating_secrets(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        parse_tier_url(url)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "gs://bucket/a/1%2520.seg",
        "abfss://container@account.dfs.core.windows.net/a/1%2520.seg",
        "file:///var/tier/1%2520.seg",
    ],
)
def test_paths_are_those_of_pyarrow(url: str) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    assert fs.FileSystem.from_uri(url)[1] == object_path(url)


def test_objects_lie_below_the_prefix_and_keep_the_parameters() -> None:
    url = object_url("s3://bucket/a?region=x", "fyrehose-a%2Fb", "1.seg")
    assert object_path(url) == "bucket/a/fyrehose-a%2Fb/1.seg"
    assert "region=x" in url
    assert "region" not in displayed(url)


@given(st.binary(max_size=300), st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_manifests_survive_encoding(content: bytes, ranges: dict[int, tuple[int, int]]) -> None:
    digest = ContentDigest()
    for start in range(0, len(content), 100):
        digest.add(content[start : start + 100])
    entry = TierEntry(7, "s3://b/ü", len(content), digest.hexdigest(), 100, digest.blocks, -5, ranges, content[:9])
    assert decode(entry.encode(), 7) == entry
    for start in range(0, len(content), 100):
        assert entry.verify_block(start // 100, content[start : start + 100])
        assert not entry.verify_block(start // 100, content[start : start + 100] + b"?")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data, 7)


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_manifest_with_any_flipped_bit_is_refused(offset: int, mask: int) -> None:
    data = bytearray(TierEntry(7, "s3://b/a", 0, "", 100, b"", 0, {}, b"").encode())
    data[offset % len(data)] ^= mask
    with pytest.raises(ValueError, match=r"."):
        decode(bytes(data), 7)


def test_ages_have_a_unit() -> None:
    assert [parse_age(text) for text in ("0", "90s", "1.5h", "1d")] == [0.0, 90.0, 5_400.0, 86_400.0]
    for text in ("1", "d", "1 fortnight", "7d,50GB", "-1d"):
        with pytest.raises(ConfigurationError, match="invalid age"):
            parse_age(text)
