from __future__ import annotations

import subprocess
import sys

import pytest

PURE = [
    "effects",
    "errors",
    "interfaces",
    "ranges",
    "record",
    "net.batch",
    "journal.reader",
    "journal.remote",
    "journal.store",
    "journal.wire",
    "sim.disk",
    "sim.network",
    "sim.scheduler",
    "freenet.codec",
    "freenet.config",
    "freenet.messages",
    "freenet.node",
    "freenet.signing",
    "freenet.state",
    "fyrehose.admission",
    "fyrehose.backbone",
    "fyrehose.batch",
    "fyrehose.client",
    "fyrehose.codec",
    "fyrehose.config",
    "fyrehose.drops",
    "fyrehose.events",
    "fyrehose.forwarding",
    "fyrehose.messages",
    "fyrehose.numbering",
    "fyrehose.pacing",
    "hydra.carriers.fragments",
    "hydra.carriers.udp_session",
    "hydra.carriers.udp_station",
    "hydra.carriers.udp_wire",
    "hydra.codec",
    "hydra.config",
    "hydra.irc_line",
    "hydra.messages",
    "hydra.node",
    "hydra.promises",
    "hydra.state",
    "parcels.codec",
    "parcels.config",
    "parcels.journal_history",
    "parcels.messages",
    "parcels.node",
    "parcels.promise_file",
    "parcels.proofs",
    "parcels.state",
]


def loaded_by(*modules: str) -> set[str]:
    """The names of all modules in a new interpreter that imports ``modules``."""
    program = f"import {', '.join(modules)}, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


@pytest.mark.parametrize("module", PURE)
def test_a_room_that_does_no_io_loads_no_twisted(module: str) -> None:
    # Its packages are imported with it, so this holds for every __init__.py on the way as well.
    loaded = loaded_by(f"fyrehose_twisted.{module}")
    assert not {name for name in loaded if name.split(".")[0] in ("twisted", "asyncio", "prometheus_client", "tqdm")}


def test_of_zope_it_loads_interfaces_only() -> None:
    loaded = loaded_by(*(f"fyrehose_twisted.{module}" for module in PURE))
    assert {".".join(name.split(".")[:2]) for name in loaded if name.split(".")[0] == "zope"} <= {
        "zope",
        "zope.interface",
    }


def test_the_packages_load_none_of_their_rooms() -> None:
    loaded = loaded_by("fyrehose_twisted", "fyrehose_twisted.fyrehose", "fyrehose_twisted.net", "fyrehose_twisted.sim")
    assert {name for name in loaded if name.split(".")[0] in ("fyrehose_twisted", "zope", "twisted", "numpy")} == {
        "fyrehose_twisted",
        "fyrehose_twisted.fyrehose",
        "fyrehose_twisted.net",
        "fyrehose_twisted.sim",
    }


def test_a_shell_does_load_twisted() -> None:
    assert "twisted.internet" in loaded_by("fyrehose_twisted.driver")
