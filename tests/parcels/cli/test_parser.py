"""Argument parsing of the cluster commands, and their reports of unreachable nodes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

import pytest

from fyrehose_twisted.parcels.cli.cluster import _describe_cluster
from fyrehose_twisted.parcels.cli.parser import add_parser

NOWHERE = "http://127.0.0.1:1"


def run(*arguments: str, data: bytes = b"", prelude: str = "") -> tuple[int, str, str]:
    """Run the command; return its status, standard output and standard error."""
    program = f"{prelude}\nfrom fyrehose_twisted.cli.main import main\nmain({['parcels', *arguments]!r})"
    ran = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, timeout=60, check=False)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("publish --timeout 0", "'0' is not a time above 0"),
        ("follow --http 127.0.0.1:80", "'127.0.0.1:80' is not a URL such as http://127.0.0.1:8878"),
        ("follow --http http://127.0.0.1:x", "is not a URL"),
        ("follow --http http://h/?from=1", "is not a URL"),
        ("follow --from 0", "'0' is not a whole number above 0"),
        ("follow --format xml", "invalid choice: 'xml'"),
        ("cluster --http ftp://here", "is not a URL"),
        ("reform --cluster x", "the following arguments are required: --http"),
        ("reform --http http://h", "the following arguments are required: --cluster"),
    ],
)
def test_invalid_arguments_are_refused_with_exit_status_2(arguments: str, complaint: str) -> None:
    status, out, err = run(*arguments.split())
    assert (status, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("publish --node 127.0.0.1", "'127.0.0.1' is not HOST:PORT, such as 127.0.0.1:7878 or [::1]:7878"),
        ("publish --dial tls:{host}", "'tls:{host}' must contain {host} and {port}, such as tls:{host}:{port}"),
        ("publish --secret-file none", "secret file none cannot be read: No such file or directory"),
        ("publish --cluster= ", "cluster '' of 0 bytes: use 1 to 64 bytes of printable text"),
        ("publish none", "none: No such file or directory"),
        ("publish /", "/: it is a directory"),
        ("follow --token-file none", "--token-file: secret file none cannot be read: No such file or directory"),
    ],
)
def test_command_failure_is_reported_in_one_line(arguments: str, complaint: str) -> None:
    assert run(*arguments.split()) == (1, "", f"fyrehose: {complaint}\n")


@pytest.mark.parametrize("command", ["follow", "cluster --json", "reform --cluster default --yes"])
def test_commands_report_an_unreachable_node_in_one_line(command: str) -> None:
    status, out, err = run(*command.split(), "--http", NOWHERE, "--timeout", "2")
    assert (status, out) == (1, "")
    assert err.startswith(f"fyrehose: {NOWHERE}: ConnectionRefusedError: ")
    assert err.count("\n") == 1


def test_publish_reports_lines_that_were_not_ordered() -> None:
    status, out, err = run("publish", "--node", "127.0.0.1:1", "--timeout", "0.3", "--numbers", data=b"a\nb\nc")
    assert (status, out) == (1, "")
    assert "Traceback" not in err
    *_, summary, complaint = err.splitlines()
    assert summary == "0 events"
    assert complaint == (
        "fyrehose: 3 of 3 events not ordered: line 1: not-connected: no number within 0.3 s; 127.0.0.1:1: refused;"
        " it will not be ordered"
    )


def test_publish_skips_and_reports_an_oversize_line() -> None:
    status, _, err = run("publish", "--node", "127.0.0.1:1", data=b"x" * 49_153 + b"\n")
    assert status == 1
    assert err.splitlines()[-1].startswith(
        "fyrehose: 1 of 1 event not ordered: line 1: message of 49,153 bytes is over the limit of 49,152 bytes"
    )


@pytest.mark.parametrize("command", ["follow", "cluster", "reform --cluster x --http http://h"])
def test_http_commands_without_treq_name_the_extra(command: str) -> None:
    prelude = "import sys; sys.modules['treq'] = None"
    missing = "fyrehose: HTTP needs treq, which is not installed: pip install 'fyrehose_twisted[web]'\n"
    assert run(*command.split(), prelude=prelude) == (1, "", missing)


def test_publish_works_without_treq() -> None:
    status, _, err = run(
        "publish", "--node", "127.0.0.1:1", "--timeout", "0.3", prelude="import sys; sys.modules['treq'] = None"
    )
    assert status == 0, err
    assert err.splitlines()[-1] == "0 events"


@pytest.mark.parametrize("option", ["--cluster-id", "--founding"])
def test_cluster_id_is_accepted_under_its_old_name(option: str) -> None:
    parser = add_parser(argparse.ArgumentParser().add_subparsers())
    assert parser.parse_args(["follow", option, "00c0ffee00c0ffee"]).cluster_id == "00c0ffee00c0ffee"
    assert parser.parse_args(["follow"]).cluster_id is None


def test_json_lines_have_the_cluster_id_under_both_names() -> None:
    follow: Any = pytest.importorskip("fyrehose_twisted.parcels.cli.follow")
    line = json.loads(follow._as_json(follow.OrderedEvent(7, "a#1", b"x"), "00c0ffee00c0ffee"))
    assert line == {
        "sequence": 7,
        "cluster_id": "00c0ffee00c0ffee",
        "founding": "00c0ffee00c0ffee",
        "publisher": "a#1",
        "data": "x",
    }


def test_help_loads_no_reactor() -> None:
    prelude = "import atexit, sys; atexit.register(lambda: print('twisted' in sys.modules))"
    status, out, _ = run("follow", "--help", prelude=prelude)
    assert status == 0
    assert out.endswith("False\n")


@pytest.mark.parametrize("key", ["cluster_id", "founding"])
def test_cluster_status_is_formatted_as_text(key: str) -> None:
    reported = {"term": 1_007, "sequence": 1_198, "lag": 2}  # Nodes of earlier versions do not tell.
    state = {
        "name": "a",
        "incarnation": "00ff",
        "cluster": "trades",
        key: "00c0ffee00c0ffee",
        "mode": "Err",
        "why": "it cannot reach a quorum",
        "leader": None,
        "term": 3,
        "sequence": 1_200,
        "oldest": 1_201,
        "quorum": 2,
        "members": [
            {"name": "a", "address": "127.0.0.1:1", "alive": True, "incarnation": "00ff", **reported},
            {"name": "another", "address": "127.0.0.1:20", "alive": False, "incarnation": "0abc"},
        ],
        "neighbours": [
            {"name": "b", "address": "[::1]:3", "mode": "Wrk", "votes": False, "ours": False, "silent": 0.26, "id": 1}
        ],
    }
    assert list(_describe_cluster(state)) == [
        "cluster trades, seen from a (00ff)",
        "cluster id 00c0ffee00c0ffee",
        "mode Err: it cannot reach a quorum",
        "no node orders events, term 3",
        "last event 1,200, held none",
        "",
        "members, of which 2 have to agree",
        "  name     address       alive  term   last event  lag  incarnation",
        "  a        127.0.0.1:1   yes    1,007  1,198       2    00ff",
        "  another  127.0.0.1:20  no     -      -           -    0abc",
        "",
        "neighbours",
        "  name  address  mode  votes  protocol      last heard",
        "  b     [::1]:3  Wrk   no     document 004  0.3 s ago",
    ]


def test_journal_records_of_a_cluster_are_printed_as_event_data() -> None:
    from fyrehose_twisted.cli import main as cli
    from fyrehose_twisted.parcels.service.journal_history import pack_event
    from fyrehose_twisted.parcels.wire.messages import Event

    payloads = [pack_event(Event(7, "p", 1, 1, b"bytes")), b"no event"]
    assert cli._payload_reader(())("parcels://default", payloads).data == [b"bytes", b"no event"]
