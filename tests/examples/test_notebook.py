"""Example notebook, run from top to bottom."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
from traitlets.config import Config
read, written, sockets = sys.argv[1:]
notebook = nbformat.read(read, as_version=4)
# Not over TCP, where Jupyter looks for ports that are free and hopes that they still are when it binds them.
config = Config(ConnectionFileMixin={"transport": "ipc", "ip": sockets})
NotebookClient(notebook, timeout=600, kernel_name="python3", config=config).execute()
nbformat.write(notebook, written)
"""
"""Run in a process of its own, because asyncio replaces the reactor's signal handlers."""

NOTEBOOK = Path(__file__).parents[2] / "examples" / "trees.ipynb"


def test_notebook_is_stored_without_outputs() -> None:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.extended
def test_notebook_runs_from_start_to_end(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    told = tmp_path / "executed.ipynb"
    command = [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(told), str(tmp_path_factory.mktemp("k") / "k")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    notebook: Any = json.loads(told.read_text(encoding="utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    said = "\n".join("".join(text) for text in texts)
    assert "'roots_per_key': 1.0, 'reach': 1.0" in said.replace("\n", "")
    assert "100 % arrived" in said
    assert re.search(r"reach after the deaths: 0\.\d", said)
    assert "reach after the repair: 1.0 roots: 1.0" in said
    drawings = [output["data"]["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(drawings) == 2
    assert drawings[0] != drawings[1]
    hops = [float(number) for number in re.findall(r"nodes: ([0-9.]+) hops", said)]
    assert len(hops) == 4
    assert hops == sorted(hops)
    assert 1.3 < hops[3] / hops[0] < 3.5
