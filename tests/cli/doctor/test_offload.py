from __future__ import annotations

import pytest

from fyrehose_twisted.cli.doctor.finding import Level
from fyrehose_twisted.cli.doctor.offload import COUNT, OffloadProbe, assess_offload

WORKS = OffloadProbe(segments=128, sends=1, receives=True, intact=COUNT, calls=1, errors={})


@pytest.mark.parametrize(
    ("trial", "sending", "receiving"),
    [
        (WORKS, (Level.OK, "UDP_SEGMENT works"), (Level.OK, "arrived in one call")),
        (WORKS._replace(calls=2), (Level.OK, "UDP_SEGMENT works"), (Level.OK, "arrived in 2 calls")),
        (
            WORKS._replace(segments=1, sends=COUNT, calls=COUNT),
            (Level.WARN, "no UDP_SEGMENT"),
            (Level.OK, "this machine sends no bursts"),
        ),
        (
            WORKS._replace(segments=1, sends=COUNT, receives=False, calls=COUNT),
            (Level.WARN, "no UDP_SEGMENT"),
            (Level.WARN, "no UDP_GRO"),
        ),
        (WORKS._replace(receives=False, calls=COUNT), (Level.OK, "works"), (Level.WARN, "no UDP_GRO")),
        (WORKS._replace(calls=COUNT), (Level.OK, "works"), (Level.WARN, "has no effect")),
        (
            WORKS._replace(sends=COUNT, calls=COUNT),
            (Level.WARN, "fails when used: 64 datagrams went out in 64 calls"),
            (Level.OK, "this machine sends no bursts"),
        ),
    ],
)
def test_udp_segmentation_offload_is_assessed_in_each_direction(
    trial: OffloadProbe, sending: tuple[Level, str], receiving: tuple[Level, str]
) -> None:
    for found, (level, said) in zip(assess_offload(trial), (sending, receiving), strict=True):
        assert found.level == level
        assert said in found.found


def test_lost_datagrams_of_the_offload_probe_are_wrong() -> None:
    findings = assess_offload(WORKS._replace(intact=3, errors={"EPERM": 61}))
    assert [found.level for found in findings] == [Level.WRONG, Level.WRONG]
    assert findings[0].found == "3 of 64 datagrams arrived on 127.0.0.1, 61 refused with EPERM"
