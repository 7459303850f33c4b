from __future__ import annotations

import hmac
from dataclasses import replace
from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.config import AddressList, BackboneConfig, ClientConfig, parse_network
from fyrehose_twisted.fyrehose.wire.packets import Dialect, Keepalive
from fyrehose_twisted.fyrehose.wire.token import make_token, token_is_valid
from fyrehose_twisted.process.secret import MIN_SECRET_BYTES, check_secret

HERE: Address = ("192.0.2.7", 2323)
SECRET = b"sixteen bytes and a few"
NOW = 1_700_000_010.0
"""Time in the middle of a step; steps begin at multiples of 30 s since 1970."""


def keepalive(*, now: float = NOW, step: int = 0, address: Address = HERE, flags: int = 0) -> Keepalive:
    return Keepalive(address, flags, make_token(SECRET, address, flags, now, step=step))


class TestAddressList:
    @pytest.mark.parametrize(
        ("host", "permitted"),
        [
            ("10.0.0.0", True),
            ("10.255.255.255", True),
            ("9.255.255.255", False),
            ("11.0.0.0", False),
            ("192.0.2.7", True),
            ("192.0.2.6", False),
            ("0.0.0.0", False),
        ],
    )
    def test_an_address_list_permits_hosts_in_its_networks(self, host: str, permitted: bool) -> None:
        addresses = AddressList(["10.0.0.0/8", IPv4Network("192.0.2.7")])
        assert addresses.permits(host) is permitted
        assert addresses.permits(host) is permitted

    def test_an_empty_address_list_permits_no_host(self) -> None:
        assert not AddressList([]).permits("127.0.0.1")

    def test_an_address_list_of_the_whole_network_permits_every_host(self) -> None:
        assert AddressList(["0.0.0.0/0"]).permits("255.255.255.255")

    @pytest.mark.parametrize(
        ("host", "permitted"),
        [("192.0.2.1", True), ("fd00::1", True), ("fe80::1%eth0", True), ("::1", False), ("192.0.3.1", False)],
    )
    def test_an_address_list_has_networks_of_both_families(self, host: str, permitted: bool) -> None:
        assert AddressList(["192.0.2.0/24", "fd00::/8", "fe80::/10"]).permits(host) is permitted

    def test_the_repr_of_an_address_list_names_its_networks(self) -> None:
        assert repr(AddressList(["10.0.0.0/8", "192.0.2.7"])) == "AddressList(10.0.0.0/8, 192.0.2.7/32)"

    @pytest.mark.parametrize(
        "text", ["", "10.0.0.1/8", "10.0.0.0/33", "300.0.0.0/8", "fd00::1/8", "::/129", "name", "10.0/8"]
    )
    def test_an_invalid_network_is_refused_by_name(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="not a network") as caught:
            parse_network(text)
        assert repr(text) in str(caught.value)
        with pytest.raises(ConfigurationError):
            AddressList(["10.0.0.0/8", text])


class TestTokens:
    def test_a_token_is_the_documented_hmac(self) -> None:
        body = bytes([192, 0, 2, 7]) + (2323).to_bytes(2, "big") + (3).to_bytes(6, "big")
        steps = (int(NOW) // 30).to_bytes(8, "big")
        assert make_token(SECRET, HERE, 3, NOW) == hmac.digest(SECRET, body + steps, "sha256")[:16]

    @given(now=st.floats(0, 4e9), flags=st.integers(0, 2**48 - 1))
    def test_a_token_is_valid_when_it_is_made(self, now: float, flags: int) -> None:
        assert token_is_valid(SECRET, keepalive(now=now, flags=flags), now)

    @pytest.mark.parametrize(("step", "valid"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
    def test_a_token_is_valid_in_the_neighbouring_time_steps(self, step: int, valid: bool) -> None:
        assert token_is_valid(SECRET, keepalive(step=step), NOW) is valid
        assert keepalive(step=step) == keepalive(now=NOW + 30 * step)

    @pytest.mark.parametrize(("seconds", "valid"), [(-31, False), (-30, True), (0, True), (59, True), (60, False)])
    def test_a_token_is_valid_despite_a_clock_offset_of_half_a_minute(self, seconds: int, valid: bool) -> None:
        start_of_step = NOW // 30 * 30
        assert token_is_valid(SECRET, keepalive(now=start_of_step), start_of_step + seconds) is valid

    @pytest.mark.parametrize(
        "changed",
        [
            {"address": ("192.0.2.8", 2323)},
            {"address": ("192.0.2.7", 2324)},
            {"flags": 1},
            {"flags": 2**47},
            {"token": bytes(16)},
            {"token": b""},
            {"token": b"", "dialect": Dialect.V1},
        ],
        ids=repr,
    )
    def test_a_token_is_invalid_with_another_address_flags_or_dialect(self, changed: dict[str, object]) -> None:
        assert not token_is_valid(SECRET, replace(keepalive(), **changed), NOW)  # type: ignore[arg-type]

    @given(st.integers(0, 127))
    def test_a_token_with_a_flipped_bit_is_invalid(self, bit: int) -> None:
        good = keepalive()
        token = int.from_bytes(good.token, "big") ^ 1 << bit
        assert not token_is_valid(SECRET, replace(good, token=token.to_bytes(16, "big")), NOW)

    def test_a_token_is_invalid_with_another_secret(self) -> None:
        assert not token_is_valid(SECRET + b"!", keepalive(), NOW)


class TestSecret:
    def test_a_secret_of_the_minimum_length_is_accepted(self) -> None:
        assert check_secret(bytes(MIN_SECRET_BYTES)) == bytes(MIN_SECRET_BYTES)

    @pytest.mark.parametrize("make", [check_secret, lambda secret: BackboneConfig(secret=secret)])
    @pytest.mark.parametrize("secret", [b"", bytes(MIN_SECRET_BYTES - 1)])
    def test_a_secret_below_the_minimum_length_is_refused(self, make: type[BackboneConfig], secret: bytes) -> None:
        with pytest.raises(ConfigurationError, match=f"{len(secret)} bytes; it needs at least 16"):
            make(secret)  # type: ignore[arg-type]

    @pytest.mark.parametrize("config", [BackboneConfig(secret=SECRET), ClientConfig(secret=SECRET)])
    def test_the_repr_of_a_config_hides_its_secret(self, config: object) -> None:
        assert SECRET.decode() not in repr(config)
