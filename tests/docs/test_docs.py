"""The documentation is correct: its commands run and print the output shown, and its links resolve."""

from __future__ import annotations

import ast
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from documented.environments import CORE, Environments
from documented.pages import Page, installs_of
from documented.terminal import DEFAULT_PORTS, HANGS, LOOKS, Terminal, pattern_of, run_page

from fyrehose_twisted.sealing.outcome import Refusal

ROOT = Path(__file__).resolve().parents[2]
BACKBONE = "twistd -n --pidfile= --logfile=backbone.log fyrehose-backbone --settle-time 0 &"
JOINED = "... client 127.0.0.1:... joined\n"


def test_python_blocks_of_the_docs_compile(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python":
            # An error names the line of the page.
            compile("\n" * block.line + block.text, str(page.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_links_of_the_docs_resolve(page: Page) -> None:
    for target in page.links:
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        assert file.exists(), f"{page.path}: {target} leads nowhere"
        if anchor:
            assert anchor in Page(file).anchors, f"{page.path}: {target}: there is no such heading"


def test_table_of_drop_reasons_is_complete() -> None:
    protocol = ROOT / "src" / "fyrehose_twisted" / "fyrehose"
    paths = [path for layer in ("node", "wire") for path in (protocol / layer).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    calls = r"""(?:drop\w*\(|MalformedPacket\(|drops\.counts\[|return |else )\s*"([a-z_]+)(?="[,)\]\n])"""
    page = (ROOT / "docs" / "protocol" / "fyrehose.md").read_text(encoding="utf-8")
    table = page.partition("## Why packets are dropped")[2]
    assert {*re.findall(calls, code), *Refusal} == set(re.findall(r"^\| `([a-z_]+)`", table, re.MULTILINE))


@pytest.mark.extended
def test_every_example_has_a_help_text(example: Path) -> None:
    done = subprocess.run([sys.executable, example, "--help"], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {example.name}")


def test_shell_message_about_a_finished_job_is_removed_from_the_output(shell: Terminal) -> None:
    shell.run("sleep 1000 &")
    shell.run(f"kill $(jobs -pr) {2**22}; wait")  # No process has this id.
    shell.run("echo and on", "and on\n")


@pytest.mark.extended
def test_ticker_example_reaches_its_subscriber(terminal: Terminal) -> None:
    terminal.run(BACKBONE)
    terminal.run("python examples/ticker.py subscribe --count 2 > ticks.txt &")
    terminal.run("grep joined backbone.log", JOINED)
    terminal.run(
        "python examples/ticker.py publish --count 2 --interval 0",
        "ticker tick 0 is message 1\nticker tick 1 is message 2\n",
    )
    terminal.run("cat ticks.txt", "message 1: ticker tick 0\nmessage 2: ticker tick 1\n")


@pytest.mark.extended
def test_subscriber_repairs_losses_of_the_relay_example(terminal: Terminal) -> None:
    terminal.run(BACKBONE)
    terminal.run("fyrehose sub > near.txt &")
    terminal.run("grep joined backbone.log", JOINED)
    terminal.run(
        "python examples/lossy_relay.py --loss 0.2 --reorder 0.2 --seed 3 &", "relaying 127.0.0.1:2424, seed 3\n"
    )
    # A live subscriber would start at the first message it receives, which need not be number 1.
    terminal.run("fyrehose sub --backbone 127.0.0.1:2424 --from 1 --count 500 > far.txt &")
    terminal.run("grep joined backbone.log", 2 * JOINED)
    terminal.run("seq 500 | fyrehose pub", "")
    terminal.run("wait %4")
    terminal.run("cmp near.txt far.txt")
    terminal.run("tail -n 1 far.txt", "500\n")


@pytest.mark.extended
def test_log_shipper_example_resumes_after_a_restart(terminal: Terminal) -> None:
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


def test_commands_of_a_page_run_and_print_the_shown_output(
    running_page: Page, page_runs: dict[str, Future[None]]
) -> None:
    commands = "\n".join(block.text for block in running_page.blocks if block.language == "console")
    if "\n$ curl " in commands and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if " ngircd " in commands and shutil.which("ngircd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("ngircd is not installed")
    if "$ tshark " in commands and shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    page_runs[running_page.name].result()


def test_every_page_names_its_requirements_before_the_first_command(page: Page) -> None:
    first = next((block for block in page.blocks if block.runs), None)
    if first is not None:
        assert page.installs, f"{page.name} says nowhere what to install"
        assert page.installs[0].line < first.line, f"{page.name}:{first.line} runs before anything is installed"


def test_every_port_of_a_page_is_mapped_by_the_test_terminal(page: Page) -> None:
    texts = [block.text for block in page.blocks if block.runs or block.file_name]
    named = set(re.findall(r"(?:\b(?:tcp|udp)|127\.0\.0\.1|localhost)[:/](\d{4,5})\b", "\n".join(texts)))
    assert named <= {*DEFAULT_PORTS}, "name them in documented/terminal.py"


@pytest.fixture
def a_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Page]:
    """Return a function that makes a page from text."""

    def make(text: str) -> Page:
        path = tmp_path_factory.mktemp("planted") / "planted.md"
        path.write_text(text, encoding="utf-8")
        return Page(path)

    return make


class NoEnvironments(Environments):
    """Environments for commands without Python; it creates none."""

    def programs(self, requirements: frozenset[str]) -> Path:
        return self._directory


def planted(commands: str, install: str = "`pip install .`") -> str:
    return f"# Planted\n\n{install}\n\n```console\n{commands}```\n"


@pytest.mark.parametrize(
    ("shown", "output", "matches"),
    [
        ("a  b\n", "a     b\n", True),
        ("a  b\n", "a b\n", False),
        ("a b\n", "a  b\n", False),
        ("at ...: fine\n", "at 12 s: fine  \n", True),
        ("...\nlast\n", "first\nsecond\nlast\n", True),
        ("...\nlast\n", "first\nsecond\n", False),
        ("...\nlast\n", "last\nfirst\nlast\n", True),
        ("...\na\n...\nb\n...\n", "0\na\n1\nb\n2\n3\n", True),
        ("...\na\n...\nb\n...\n", "b\na\n", False),
        ("a...b...c\n", "a b c b c\n", True),
        ("a...b...c\n", "a c b\n", False),
        ("a...b...c\n", "a b c b\n", False),
        (f"a{'...b' * 9}...c\n", f"a{' b' * 2_000} d\n", False),
        ("...\na\n" * 9 + "b\n", "a\n" * 2_000, False),
    ],
)
def test_wildcards_in_shown_output_match(shown: str, output: str, matches: bool) -> None:
    assert bool(re.fullmatch(pattern_of(shown), output)) == matches


@pytest.mark.parametrize(
    ("command", "looks"),
    [
        ("grep -c joined backbone.log", True),
        ("curl -s http://127.0.0.1:8888/cluster > cluster.json; cat cluster.json; echo", True),
        ("curl -s -d 'x' http://127.0.0.1:8481/messages; echo", False),
        ("""python -c "import urllib.request as r; print(r.urlopen('$NEWEST').read().decode())\"""", True),
        (
            """python -c "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8481', b'1').read())\"""",
            False,
        ),
        ("fyrehose parcels reform --http http://127.0.0.1:8891 --cluster default --yes", False),
        ("fyrehose journal cat kept --epoch 1 | grep -v JOIN", True),
        ("fyrehose journal cat kept --follow", False),
        ("catch", False),
    ],
)
def test_only_commands_without_side_effects_are_retried(command: str, looks: bool) -> None:
    assert bool(LOOKS.match(command)) == looks


@pytest.mark.parametrize(
    ("commands", "complaint"),
    [
        ("$ false\n", r"planted\.md:6: \$ false\nended with status 1"),
        ("$ echo right\nwrong\n", r"planted\.md:6: \$ echo right\nshould show"),
        ("$ echo one two\none\n", "should show"),
        ("$ (exit 2)\n", "ended with status 2"),
        ("$ exit 2\n", "ends the shell"),
        ("$ echo unseen\n", "does not show"),
        ("$ while sleep 0.01; do echo .; done &\n$ echo\nend\n", "should show:\nend"),
        ("$ echo fine\nfine\n$ echo fine again; sleep 1000\n", r"md:8: .*\ndoes not end within 1 s; .*\nfine again"),
    ],
)
def test_failing_command_on_a_page_fails_the_check(
    a_page: Callable[[str], Page], tmp_path: Path, free_port: Callable[[], int], commands: str, complaint: str
) -> None:
    # One second suffices only for commands that never end and output that never arrives.
    terminal = Terminal(tmp_path, free_port, late=1.0, **({"hangs": 1.0} if "sleep" in commands else {}))
    try:
        with pytest.raises(AssertionError, match=complaint):
            run_page(a_page(planted(commands)), terminal, NoEnvironments(tmp_path))
    finally:
        terminal.close()


def test_daemon_left_behind_by_a_page_is_stopped(
    a_page: Callable[[str], Page], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    terminal = Terminal(tmp_path, free_port)
    started = "$ (setsid sleep 1000 & echo $! > started)\n$ cat started\n...\n"
    run_page(a_page(planted(started)), terminal, NoEnvironments(tmp_path))
    daemon = os.pidfd_open(int((tmp_path / "started").read_text()))
    terminal.close()
    assert select.select([daemon], [], [], 0)[0] == [daemon]
    os.close(daemon)


USES_QUERY = '$ python -c "import jmespath"\n'


@pytest.mark.extended
@pytest.mark.parametrize("install", ["`pip install '.[web]'`", "`pip install '.[keys,parquet]'`"])
def test_page_that_uses_an_extra_without_installing_it_fails(
    a_page: Callable[[str], Page], shell: Terminal, environments: Environments, install: str
) -> None:
    with pytest.raises(AssertionError, match="No module named 'jmespath'"):
        run_page(a_page(planted(USES_QUERY, install)), shell, environments)


@pytest.mark.extended
def test_extra_is_available_after_the_command_that_installs_it(
    a_page: Callable[[str], Page], shell: Terminal, environments: Environments
) -> None:
    before = planted('$ python -c "import jmespath" 2> error || tail -n 1 error\n...No module named...\n')
    run_page(a_page(before + planted(USES_QUERY, "    pip install '.[query]'")), shell, environments)


@pytest.mark.extended
def test_twistd_lists_all_services_without_extras(shell: Terminal, environments: Environments) -> None:
    shell.enter(environments.programs(CORE))
    shell.run("twistd --help | grep -c -E '^    (fyrehose|freenet|hydra|parcels)-'", "9\n")


def test_page_without_an_install_command_fails(a_page: Callable[[str], Page], shell: Terminal, tmp_path: Path) -> None:
    page = a_page("# Planted\n\n```console\n$ true\n```\n")
    with pytest.raises(AssertionError, match="no line above says what to install"):
        run_page(page, shell, NoEnvironments(tmp_path))
    with pytest.raises(AssertionError, match="says nowhere what to install"):
        test_every_page_names_its_requirements_before_the_first_command(page)


@pytest.mark.parametrize(
    ("line", "requirements"),
    [
        ("pip install .", {"fyrehose_twisted"}),
        (
            "`pip install '.[spark,report]'` here, `pip install . pytest` there",
            {"fyrehose_twisted[spark,report]", "fyrehose_twisted", "pytest"},
        ),
        ("    venv/bin/pip install 'fyrehose_twisted[query]'  # for filters", {"fyrehose_twisted[query]"}),
        ("pip install --upgrade fyrehose_twisted && true", {"fyrehose_twisted"}),
        ("pip installs nothing", set()),
    ],
)
def test_requirements_are_parsed_from_a_line(line: str, requirements: set[str]) -> None:
    assert installs_of(line) == requirements


@pytest.mark.parametrize("target", ["missing.md", "../../nowhere/at-all.py", "#no-such-heading", "planted.md#nor-this"])
def test_broken_link_on_a_page_fails(a_page: Callable[[str], Page], target: str) -> None:
    with pytest.raises(AssertionError):
        test_links_of_the_docs_resolve(a_page(f"# Planted\n\nSee [it]({target}).\n"))


def test_invalid_python_on_a_page_fails(a_page: Callable[[str], Page]) -> None:
    with pytest.raises(SyntaxError):
        test_python_blocks_of_the_docs_compile(a_page("```python\nawait = 1\n```\n"))


def test_page_with_valid_links_and_wildcards_passes(
    a_page: Callable[[str], Page], shell: Terminal, tmp_path: Path
) -> None:
    page = a_page(
        "# A heading: two\n\n[here](#a-heading-two)\n" + planted("$ echo 1 2 3; echo; echo 4\n1 ... 3\n...\n4\n")
    )
    test_links_of_the_docs_resolve(page)
    run_page(page, shell, NoEnvironments(tmp_path))
