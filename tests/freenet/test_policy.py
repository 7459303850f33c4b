from __future__ import annotations

from typing import Any

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.policy import Policy


@pytest.mark.parametrize(
    "wrong",
    [
        {"p_max": 1.1},
        {"p_min": -0.1},
        {"p_min": float("nan")},
        {"htl_on_closer": "forget"},
        {"accept": "none"},
        {"coalesce": "merge"},
        {"on_parent_lost": "cry"},
        {"max_htl": 0},
        {"max_htl": 256},
        {"max_streams": 0},
        {"max_streams": 2.5},
        {"keep_packets": 0},
        {"max_waiting": 10**7},
        {"hold": -1.0},
        {"accepted_timeout": float("inf")},
        {"restart_jitter": float("nan")},
        {"publish_timeout": -0.001},
        {"first_probe": float("inf")},
    ],
    ids=str,
)
def test_an_invalid_policy_is_refused(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigurationError, match=f"{name}={value!r}"):
        Policy(**wrong)


def test_the_defaults_are_those_of_the_document() -> None:
    policy = Policy()
    assert (policy.max_htl, policy.max_streams, policy.keep_packets) == (10, 32, 32)
    assert (policy.accepted_timeout, policy.completion_timeout, policy.restart_interval) == (10.0, 120.0, 300.0)


@pytest.mark.parametrize(
    "right", [{"p_max": 0.0, "p_min": 1.0}, {"max_htl": 255}, {"hold": 0.0}, {"coalesce": "reject"}]
)
def test_extreme_policies_are_valid(right: dict[str, Any]) -> None:
    assert Policy(**right)
