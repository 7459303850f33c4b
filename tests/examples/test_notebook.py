"""The notebook runs from top to bottom, and says what its text says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "trees.ipynb"


def test_it_is_kept_without_outcomes() -> None:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


# Jupyter's client brings a loop of its own, whose sockets are closed when the garbage is collected.
@pytest.mark.filterwarnings("ignore")
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    said = "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "'roots_per_key': 1.0, 'reach': 1.0" in said.replace("\n", "")
    assert "100 % came" in said
    assert re.search(r"reach when they have died: 0\.\d", said)
    assert "reach when it has healed: 1.0 roots: 1.0" in said
    drawings = [output["data"]["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(drawings) == 2
    assert drawings[0] != drawings[1]
    hops = [float(number) for number in re.findall(r"nodes: ([0-9.]+) hops", said)]
    assert len(hops) == 4
    assert hops == sorted(hops)
    assert 1.3 < hops[3] / hops[0] < 3.5
