from __future__ import annotations

import subprocess
import sys

import pytest

PURE = [
    "datagrams",
    "effects",
    "errors",
    "freenet.config",
    "freenet.node",
    "freenet.node.status",
    "freenet.wire.codec",
    "freenet.wire.messages",
    "freenet.wire.signing",
    "fyrehose.config",
    "fyrehose.events",
    "fyrehose.node.backbone.backbone",
    "fyrehose.node.backbone.forwarding",
    "fyrehose.node.backbone.sequencer",
    "fyrehose.node.client.client",
    "fyrehose.node.drop_log",
    "fyrehose.wire.codec",
    "fyrehose.wire.packets",
    "fyrehose.wire.run_codec",
    "fyrehose.wire.token",
    "hydra.config",
    "hydra.node",
    "hydra.node.durable_state",
    "hydra.node.status",
    "hydra.transports.notice_stream",
    "hydra.transports.udp.datagrams",
    "hydra.transports.udp.demux",
    "hydra.transports.udp.session",
    "hydra.wire.codec",
    "hydra.wire.irc_line",
    "hydra.wire.messages",
    "interfaces",
    "journal.reader",
    "journal.remote",
    "journal.remote.wire",
    "journal.store",
    "parcels.config",
    "parcels.node",
    "parcels.node.status",
    "parcels.service.journal_history",
    "parcels.service.state_file",
    "parcels.wire.auth",
    "parcels.wire.codec",
    "parcels.wire.messages",
    "ranges",
    "record",
    "sim.disk",
    "sim.network",
    "sim.scheduler",
    "token_bucket",
]


def loaded_by(*modules: str) -> set[str]:
    """Return the names of all modules that a new interpreter loads to import ``modules``."""
    program = f"import {', '.join(modules)}, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


@pytest.mark.parametrize("module", PURE)
def test_a_module_without_io_imports_no_twisted(module: str) -> None:
    # Parent packages are imported too, so this covers every __init__.py.
    loaded = loaded_by(f"fyrehose_twisted.{module}")
    assert not {name for name in loaded if name.split(".")[0] in ("twisted", "asyncio", "prometheus_client", "tqdm")}


def test_pure_modules_load_only_zope_interface_of_zope() -> None:
    loaded = loaded_by(*(f"fyrehose_twisted.{module}" for module in PURE))
    assert {".".join(name.split(".")[:2]) for name in loaded if name.split(".")[0] == "zope"} <= {
        "zope",
        "zope.interface",
    }


def test_packages_import_none_of_their_modules() -> None:
    loaded = loaded_by("fyrehose_twisted", "fyrehose_twisted.fyrehose", "fyrehose_twisted.net", "fyrehose_twisted.sim")
    assert {name for name in loaded if name.split(".")[0] in ("fyrehose_twisted", "zope", "twisted", "numpy")} == {
        "fyrehose_twisted",
        "fyrehose_twisted._exports",
        "fyrehose_twisted._moved",
        "fyrehose_twisted.fyrehose",
        "fyrehose_twisted.net",
        "fyrehose_twisted.sim",
    }


def test_a_driver_module_imports_twisted() -> None:
    assert "twisted.internet" in loaded_by("fyrehose_twisted.driver")
