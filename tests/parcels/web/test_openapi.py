"""Conformance of the node's site to its OpenAPI description, checked by Schemathesis."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from parcels.web.harness import FakeSender, Memory, Serve, Served
from twisted.internet.task import Clock
from twisted.internet.utils import getProcessOutputAndValue
from twisted.logger import LogLevel, capturedLogs

from fyrehose_twisted.parcels.web import Callbacks, WebConfig

inline = pytest_twisted.ensureDeferred

SEED = 20_041


async def check(web: Served, path: Path, *options: str, seed: int = SEED) -> None:
    """Run Schemathesis against a site; its output contains the seed."""
    program = str(Path(sys.executable).parent / "schemathesis")
    run = ["run", f"{web.url}/openapi.json", "--no-color", f"--seed={seed}", "--generation-database=none"]
    run += ["--request-timeout=120", "--suppress-health-check=all", *options]
    # The site is on loopback, so no proxy is used.
    env = {**os.environ, "PYTHONWARNINGS": "ignore", "no_proxy": "*"}
    with capturedLogs() as logs:
        out, err, status = await getProcessOutputAndValue(program, run, env=env, path=str(path))
    assert status == 0, f"seed {seed}\n{out.decode()}\n{err.decode()}"
    assert [log for log in logs if log["log_level"] >= LogLevel.warn] == []


def served(memory: Memory, serve: Serve, sender: FakeSender, **more: Any) -> Any:
    config = WebConfig(allow_private_callbacks=True, max_callbacks=10_000)
    callbacks = Callbacks(memory, sender, config, Clock())
    callbacks.start()
    memory.cluster_id = "0123456789abcdef"
    memory.order(b"one", b'{"two": 2}', b"\xff")
    return serve(memory, config, callbacks=callbacks, **more)


@pytest.mark.extended
@inline
async def test_node_site_conforms_to_its_openapi_description(
    memory: Memory, serve: Serve, sender: FakeSender, tmp_path: Path
) -> None:
    await check(served(memory, serve, sender), tmp_path, "--max-examples=20")


@pytest.mark.extended
@inline
async def test_node_site_with_a_token_conforms_to_its_openapi_description(
    memory: Memory, serve: Serve, sender: FakeSender, tmp_path: Path
) -> None:
    web = served(memory, serve, sender, token=b"s3cret")
    await check(web, tmp_path, "--max-examples=5", "--header=Authorization: Bearer s3cret")


@pytest.mark.soak(seconds=300)
@inline
async def test_node_site_conforms_to_its_openapi_description_for_many_examples(
    memory: Memory, serve: Serve, sender: FakeSender, tmp_path: Path
) -> None:
    for seed in range(3):
        await check(served(memory, serve, sender), tmp_path, "--max-examples=300", seed=seed)
