"""The documentation is true: what it shows runs and prints what it says, and its links lead somewhere."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BACKBONE = "twistd -n --pidfile= --logfile=backbone.log fyrehose-backbone --settle-time 0 &"
JOINED = "... client 127.0.0.1:... joined\n"


def test_python_blocks_compile(page: Any) -> None:
    for block in page.blocks:
        if block.language == "python":
            # The line number in the page is what an error has to name.
            compile("\n" * block.line + block.text, str(page.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_links_resolve(page: Any) -> None:
    for target in page.links:
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        assert file.exists(), f"{page.path}: {target} leads nowhere"
        if anchor:
            assert anchor in type(page)(file).anchors, f"{page.path}: {target}: there is no such heading"


def test_table_of_drop_reasons_is_complete() -> None:
    wing = ROOT / "src" / "fyrehose_twisted" / "fyrehose"
    code = "\n".join(path.read_text(encoding="utf-8") for path in wing.glob("*.py"))
    calls = r"""(?:_drop\(|MalformedPacket\(|drops\.counts\[|return |else )\s*"([a-z_]+)(?="[,)\]\n])"""
    page = (ROOT / "docs" / "protocol" / "fyrehose.md").read_text(encoding="utf-8")
    table = page.partition("## Why packets are dropped")[2]
    assert set(re.findall(calls, code)) == set(re.findall(r"^\| `([a-z_]+)`", table, re.MULTILINE))


def test_example_explains_itself(example: Path) -> None:
    done = subprocess.run([sys.executable, example, "--help"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {example.name}")


def test_job_that_ends_before_the_signal_comes_is_not_in_the_output(terminal: Any) -> None:
    terminal.run("sleep 60 &")
    terminal.run(f"kill $(jobs -pr) {2**22}")  # No process has such a number.
    terminal.run("echo and on", "and on\n")


def test_ticker_reaches_its_subscriber(terminal: Any) -> None:
    terminal.run(BACKBONE)
    terminal.run("python examples/ticker.py subscribe --count 2 > ticks.txt &")
    terminal.run("grep joined backbone.log", JOINED)
    terminal.run(
        "python examples/ticker.py publish --count 2 --interval 0",
        "ticker tick 0 is message 1\nticker tick 1 is message 2\n",
    )
    terminal.run("cat ticks.txt", "message 1: ticker tick 0\nmessage 2: ticker tick 1\n")


def test_relay_loses_and_the_subscriber_repairs(terminal: Any) -> None:
    terminal.run(BACKBONE)
    terminal.run("fyrehose sub > near.txt &")
    terminal.run("grep joined backbone.log", JOINED)
    terminal.run(
        "python examples/lossy_relay.py --loss 0.2 --reorder 0.2 --seed 3 &", "relaying 127.0.0.1:2424, seed 3\n"
    )
    # Live would begin with what gets through first, which need not be message 1.
    terminal.run("fyrehose sub --backbone 127.0.0.1:2424 --from 1 --count 500 > far.txt &")
    terminal.run("grep joined backbone.log", 2 * JOINED)
    terminal.run("seq 500 | fyrehose pub", "published: 500 messages ...\n")
    terminal.run("wait %4")
    terminal.run("cmp near.txt far.txt")
    terminal.run("tail -n 1 far.txt", "500\n")


def test_log_shipper_goes_on_where_it_stopped(terminal: Any) -> None:
    terminal.run(BACKBONE)
    terminal.run("python examples/log_shipper.py collect all.log &")
    terminal.run("grep joined backbone.log", JOINED)
    terminal.run("seq 1 3 > app.log && python examples/log_shipper.py ship app.log")
    terminal.run("cat all.log", "1\t1\n2\t2\n3\t3\n")
    terminal.run("seq 4 5 >> app.log && printf torn >> app.log && python examples/log_shipper.py ship app.log")
    terminal.run("cat all.log", "1\t1\n2\t2\n3\t3\n4\t4\n5\t5\n")
    terminal.run("kill %2; wait %2 || true")
    terminal.run("python examples/log_shipper.py collect all.log &")
    terminal.run("grep -c joined backbone.log", "4\n")
    terminal.run("echo >> app.log && python examples/log_shipper.py ship app.log")
    terminal.run("tail -n 2 all.log", "5\t5\n6\ttorn\n")


def test_page_runs(running_page: Any, page_runs: Any) -> None:
    text = running_page.path.read_text(encoding="utf-8")
    if "\n$ curl " in text and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if " ngircd " in text and shutil.which("ngircd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("ngircd is not installed")
    page_runs[running_page.path.relative_to(ROOT).as_posix()].result()


# The checks themselves can fail.


def fixtures_of(terminal: Any) -> Any:
    """The module of the fixtures; pytest does not let tests import it."""
    return sys.modules[type(terminal).__module__]


def page_with(tmp_path: Path, template: Any, text: str) -> Any:
    path = tmp_path / "planted.md"
    path.write_text(text, encoding="utf-8")
    return type(template)(path)


@pytest.fixture
def a_page(terminal: Any) -> Any:
    """Makes a page out of text."""
    return lambda text: page_with(terminal.directory, fixtures_of(terminal).PAGES[0], text)


@pytest.mark.parametrize(
    ("commands", "complaint"),
    [
        ("$ false\n", "ended with status 1"),
        ("$ echo right\nwrong\n", "should show"),
        ("$ echo one two\none\n", "should show"),
        ("$ (exit 2)\n", "ended with status 2"),
        ("$ echo unseen\n", "does not show"),
    ],
)
def test_planted_wrong_command_fails(
    a_page: Any, terminal: Any, commands: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixtures_of(terminal), "PATIENCE", 1.0)
    with pytest.raises(AssertionError, match=complaint):
        fixtures_of(terminal).run_page(a_page(f"# Planted\n\n```console\n{commands}```\n"), terminal)


@pytest.mark.parametrize("target", ["missing.md", "../../nowhere/at-all.py", "#no-such-heading", "planted.md#nor-this"])
def test_planted_wrong_link_fails(a_page: Any, target: str) -> None:
    with pytest.raises(AssertionError):
        test_links_resolve(a_page(f"# Planted\n\nSee [it]({target}).\n"))


def test_planted_wrong_python_fails(a_page: Any) -> None:
    with pytest.raises(SyntaxError):
        test_python_blocks_compile(a_page("```python\nawait = 1\n```\n"))


def test_right_links_and_wildcards_pass(a_page: Any, terminal: Any) -> None:
    page = a_page(
        "# A heading: two\n\n[here](#a-heading-two)\n\n```console\n$ echo 1 2 3; echo; echo 4\n1 ... 3\n...\n4\n```\n"
    )
    test_links_resolve(page)
    fixtures_of(terminal).run_page(page, terminal)
