"""Dashboard of the query service in a real browser."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from integration.running.backbone import MakePeer, StartBackbone
from integration.running.browser import Browser, OpenBrowser, OpenPage
from integration.running.cluster import StartCluster
from integration.running.irc import StartIrcd
from integration.running.journal import StartJournal
from integration.running.programs import AwaitTrue, Program, Start
from integration.running.query import Canned, StartQuery

from fyrehose_twisted.fyrehose.wire.codec import encode_push
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.record import Record

DEADLINE = 120.0


Guarded = tuple[Path, Program, str]

IN_ONE = pytest.mark.parametrize("open_page", ["chromium"], indirect=True)
"""Mark of a test that is long because its services are, and whose page looks like others, which both browsers show."""


def cell(row: str, title: str) -> str:
    """Return a script whose value is the text of a table cell."""
    return (
        "[...document.querySelectorAll('tbody tr:not(#topology *)')]"
        f".find((row) => row.cells[0].textContent === {json.dumps(row)})"
        f".querySelector('td[data-label={json.dumps(title)}]').textContent"
    )


def answers(service: str) -> str:
    """Return a script that tells whether a service has answered and is not down."""
    state, old = cell(service, "State"), cell(service, "Age")
    return f"/^[✓!]/u.test({state}) && {old} !== '\\u2013'"


SHIFTS = """(async () => {
    const shifts = [];
    const seen = new PerformanceObserver((list) => shifts.push(...list.getEntries().map(({value, sources}) =>
      [value, ...sources.map(({node}) => node?.outerHTML ?? node?.textContent)])));
    seen.observe({type: "layout-shift"});
    const told = await (await fetch("/overview")).json();
    const took = [];
    for (let step = 0; step < 12; step++) {
        told.at += 1;
        for (const [index, stream] of told.streams.entries()) {
            const more = Math.round(7 * index * step ** 2.5);
            stream.records += more;
            stream.epochs[0].last += more;
            stream.epochs[0].next += more;
            stream.followers = step;
        }
        const began = performance.now();
        show(told);
        took.push(performance.now() - began);
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    }
    await new Promise((done) => setTimeout(done, 100));
    return {shifts, took: Math.max(...took.slice(1))};
})()"""
"""Add some digits to all numbers, as time does. The layout must not move."""


# Without a browser, `browser` skips the test before anything else is made.
@pytest.mark.extended
def test_dashboard_shows_the_state_of_all_services_and_streams(
    open_page: OpenPage,
    start_query: StartQuery,
    start_backbone: StartBackbone,
    start_journal: StartJournal,
    peer: MakePeer,
    tmp_path: Path,
) -> None:
    page = open_page()
    backbone = start_backbone("--metrics=tcp:0")
    metrics = backbone.program.wait_for(r"metrics at (http://\S+)")[1]
    journal = start_journal(backbone, "kept")
    backbone.wait_for_clients(1)
    publisher = peer(backbone)  # It pushes nothing twice, however late a message returns.
    publisher.publish_once(b'{"n": %d, "kind": "%s"}' % (n, b"odd" if n % 2 else b"even") for n in range(1, 301))
    journal.wait_for(300)
    program, url = start_query(tmp_path / "kept", "--watch", f"backbone={metrics}", "--watch=gone=http://127.0.0.1:9/")
    page.size(1400, 900)
    page.go(url)
    page.until("document.getElementById('state-text').textContent === 'Live'")

    # It shows the records of the journal.
    stream = "fyrehose://default"
    page.until(f"{cell(stream, 'Complete to')} === '300'")
    assert page.run(cell(stream, "Missing")) == page.run(cell(stream, "Lost")) == "0"
    page.until(answers("backbone"))
    assert page.run(cell("backbone", "Last number")) == "300"
    assert page.run(cell("backbone", "Journals")) == "1"
    page.until(f"{cell('gone', 'State')}.startsWith('✗')")
    page.until("document.querySelectorAll('#connected tbody tr').length > 0")

    # It follows new records.
    publisher.publish_once([b'{"n": 301}'] * 50)
    page.until(f"{cell(stream, 'Complete to')} === '350'")
    page.keep("dashboard-light")

    # By keyboard only: select a stream, enter it, set a filter, and return.
    for _ in range(30):
        page.key("Tab")
        if page.run("document.activeElement.textContent") == stream:
            break
    assert page.run("document.activeElement.matches(':focus-visible')")
    page.key("Enter")
    page.until("document.querySelectorAll('#list li').length === 20")
    assert page.run("document.querySelector('#list li .number').textContent") == "350"
    assert page.run("document.querySelector('#list .payload').textContent") == '{"n": 301}'

    # At the beginning there is no gap, and new records do not appear below old ones.
    numbers = "[...document.querySelectorAll('#list .number:first-child')].map((one) => Number(one.textContent))"
    for shown in (*range(70, 350, 50), 350):
        page.run("document.getElementById('older').focus()")
        page.key("Enter")
        page.until(f"document.querySelectorAll('#list li').length === {shown}")
        page.until("document.getElementById('older-state').textContent.includes('older')")
    assert page.run(numbers) == list(range(350, 0, -1))
    assert page.run("document.getElementById('older-state').textContent") == "30 older records; start of the journal"
    assert page.run("document.getElementById('older').disabled")
    page.keep("dashboard-older")
    page.run("document.getElementById('pause').click()")
    page.until("document.querySelectorAll('#list li').length === 20")
    assert not page.run("document.getElementById('older').disabled")
    # A response that arrives after a change of the list is discarded.
    page.run("for (const name of ['older', 'pause', 'pause']) document.getElementById(name).click()")
    if isinstance(page, Browser):  # Scripts of the test do not see the variables of the page in Firefox.
        page.until("records.paused && !records.loading")
    assert page.run("document.querySelectorAll('#list li').length") == 20
    page.run("document.getElementById('pause').click()")
    page.run("document.getElementById('where').focus()")
    page.type("kind == 'odd' && n > `295`")
    page.key("Enter")
    page.until("document.querySelectorAll('#list li').length === 2")
    assert page.run("[...document.querySelectorAll('#list .number')].map((one) => one.textContent)[0]") == "299"
    # The filter may match records far back.
    page.run("document.getElementById('older').click()")
    page.until("document.querySelectorAll('#list li').length === 2 && document.getElementById('older').disabled")
    page.keep("dashboard-records")
    page.run("document.getElementById('where').select()")
    page.type("kind ==")
    page.key("Enter")
    page.until("document.getElementById('where-error').textContent.includes('JMESPath')")
    page.key("Escape")
    page.until("!document.getElementById('records').open")
    assert page.run("document.activeElement.textContent") == stream

    # Dark scheme, narrow screen.
    page.size(1400, 900, dark=True)
    page.keep("dashboard-dark")
    page.size(360, 740)
    assert page.run("document.documentElement.scrollWidth") <= 360
    # Rows are shown as cards, and stay table rows for screen readers.
    if isinstance(page, Browser):
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        heard = [node["role"]["value"] for node in nodes if not node["ignored"]]
        assert {"banner", "main", "contentinfo", "navigation", "table", "row", "rowheader", "columnheader"} <= set(
            heard
        )
        # The table of the topology is folded.
        assert page.run("document.querySelectorAll('table').length") == heard.count("table") + 1 == 5
    page.keep("dashboard-phone")
    page.size(1400, 900)

    # A dead service is shown as down with its last figures; so is the query service itself.
    page.until(f"{cell('backbone', 'Last number')} === '350'")
    backbone.kill()
    page.until(f"{cell('backbone', 'State')}.startsWith('✗')")
    assert page.run(cell("backbone", "Last number")) == "350"
    assert page.run(cell("backbone", "Published/s")) == "\N{EN DASH}"
    page.until("document.getElementById('trouble').textContent === '✗ Down: backbone, gone'")
    assert page.run("document.title") == "✗ fyrehose"
    program.signal(signal.SIGTERM).finish()
    page.until("document.getElementById('state').classList.contains('bad')")
    assert page.run("document.getElementById('state').getAttribute('role')") == "status"
    assert page.errors == []


@pytest.fixture
def guarded(start_query: StartQuery, tmp_path: Path) -> Guarded:
    """Return a service with tokens: its tokens file, its process and its URL."""
    (tmp_path / "kept").mkdir()
    tokens = tmp_path / "tokens"
    tokens.write_text("ann correct-horse-battery\n")
    tokens.chmod(0o600)
    return tokens, *start_query(tmp_path / "kept", "--tokens-file", tokens)


def test_dashboard_prompts_for_a_token(open_page: OpenPage, guarded: Guarded, tmp_path: Path) -> None:
    page = open_page()
    tokens, program, url = guarded
    page.size(500, 700)
    page.go(url)
    page.until("!document.getElementById('login').hidden")
    assert page.run("document.activeElement.id") == "token"
    page.type("wrong-horse-battery")
    page.key("Enter")
    page.until("document.getElementById('login-error').textContent.includes('invalid')")
    page.type("correct-horse-battery")
    page.key("Enter")
    page.until("document.getElementById('state-text').textContent === 'Live'")
    page.until("document.getElementById('streams').textContent.includes('no journal')")
    assert page.run("location.href") == url

    # A revoked token: the form is not behind the records.
    stream = "fyrehose://kept"
    with closing(open_journal(tmp_path / "kept", stream)) as journal:
        journal.append([Record(stream, 0, 1, 1_700_000_000_000_000, b"one")])
    page.until(f"{cell(stream, 'Newest')} === '1'")
    tokens.write_text("ann battery-horse-correct\n")
    program.signal(signal.SIGHUP).wait_for("SIGHUP: 1 token")
    page.run("document.querySelector('#streams tbody a').click()")
    page.until("!document.getElementById('login').hidden")
    assert page.run("document.getElementById('records').open") is False
    assert page.run("document.activeElement.id") == "token"
    assert "horse" not in program.out + program.err
    assert page.errors == []


GATE = """
const read = Response.prototype.json, fetched = window.fetch;
window.asked = [];
window.gate = new Promise((done) => { window.openGate = done; });
Response.prototype.json = async function () {
  if (this.status === 401) await window.gate;
  return read.call(this);
};
window.fetch = async (path, options) => {
  window.asked.push(path);
  const answer = await fetched(path, options);
  if (path.includes("late")) await window.gate;
  return answer;
};
"""
"""Delay the bodies of refusals, and the responses to paths with "late", until the gate opens."""


@pytest.mark.extended
def test_token_entered_before_the_refusal_arrives_is_kept(open_browser: OpenBrowser, guarded: Guarded) -> None:
    page = open_browser()
    _, _, url = guarded
    page.before_scripts(GATE)
    page.go(url)
    page.until("!document.getElementById('login').hidden")
    page.type("wrong-horse-battery")
    page.key("Enter")
    page.until("document.getElementById('login').hidden")
    page.run("openGate()")
    page.until("document.getElementById('login-error').textContent.includes('invalid')")
    assert not page.run("document.getElementById('login').hidden")
    page.type("correct-horse-battery")
    page.key("Enter")
    page.until("document.getElementById('state-text').textContent === 'Live'")
    assert (
        page.run("asked.filter((path) => path !== '/history')") == ["/overview"] * 3
    )  # Without a token, with the wrong one, with the right one.
    assert page.errors == []


@pytest.mark.extended
def test_late_refusal_does_not_discard_a_newer_token(open_browser: OpenBrowser, guarded: Guarded) -> None:
    page = open_browser()
    _, _, url = guarded
    page.before_scripts(GATE + "sessionStorage.setItem('token', 'wrong-horse-battery');")
    page.go(url)
    page.until("!document.getElementById('login').hidden")
    page.run("token = 'wrong-horse-battery'; late = ask('/streams?late', {}).catch((error) => error.status); 0")
    page.type("correct-horse-battery")
    page.key("Enter")
    page.run("openGate()")
    assert page.run("late") == 401
    page.until("document.getElementById('state-text').textContent === 'Live'")
    assert page.run("token") == page.run("sessionStorage.getItem('token')") == "correct-horse-battery"
    assert page.run("document.getElementById('login').hidden")
    assert page.errors == []


BIG = "9007199254740991"
WIDE = {
    "a-backbone-with-a-long-name-that-does-not-end-soon": [
        *('info{service="backbone",stream="fyrehose://wide"} 1', f"backbone_sequence {BIG}", "backbone_clients 123456"),
        *(f"backbone_published_total {BIG}", f"backbone_delivered_total {BIG}", "backbone_journals 99999"),
        *(f'backbone_dropped_total{{reason="{reason}"}} 1' for reason in ("token", "table_full", "request_rate")),
    ],
    "journal": [
        *('info{service="journal",stream="fyrehose://wide"} 1', 'journal_next{stream="fyrehose://wide"} 1'),
        *("client_connected 0", f"client_missing {BIG}", f"client_lost_total {BIG}", f"client_answered_total {BIG}"),
    ],
    "client": ["client_connected 0", f"client_sequence {BIG}", f"client_lost_total {BIG}"],
    "parcels": ['info{service="parcels",cluster="wide"} 1', 'parcels_leader{leader="' + 60 * "w" + '"} 1'],
    "hydra": ['info{service="hydra",network="wide"} 1', "hydra_nodes 3", "hydra_quorum 2"],
    "freenet": ['info{service="freenet"} 1', 'freenet_streams{phase="searching"} 1234567'],
    "frontend": ['info{service="frontend"} 1', "frontend_backbone 0", f"frontend_waiting_bytes {BIG}"],
    "query": ['info{service="query"} 1', f"query_requests_total {BIG}"],
}
"""Services with the longest names and figures."""

WIDE_CLIENTS: list[dict[str, Any]] = [
    {
        "address": f"255.255.255.{host}:65535",
        "kind": kind,
        "published": 0,
        "delivered": 0,
        "lag": lag,
        "connected_seconds": 9e7,
        "silent_seconds": 4.9,
        "requested_seconds": 9e7,
        "retransmitting": 1_234_567,
    }
    for host, (kind, lag) in enumerate([("journal", int(BIG)), ("publisher", None), ("subscriber", None)], 253)
]

TOO_WIDE = """[...document.querySelectorAll("*")].filter((one) =>
    one.scrollWidth > one.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(one).overflowX)
    || one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
    && !one.closest(".skip, thead, dialog")).map((one) => one.outerHTML.slice(0, 120))"""
"""Elements that scroll horizontally or overflow."""


@pytest.fixture
def wide(start_query: StartQuery, canned: Canned, tmp_path: Path) -> str:
    """Return the URL of a dashboard with more columns than fit."""
    stream = "fyrehose://" + "wide-" * 15
    with closing(open_journal(tmp_path / "kept", stream)) as journal:
        journal.append([Record(stream, 0, number, 1_700_000_000_000_000, b"x") for number in (2**47, 2**47 + 2)])
    watched = (f"--watch={name}={canned(*samples, clients=WIDE_CLIENTS)}" for name, samples in WIDE.items())
    url: str = start_query(tmp_path / "kept", *watched, "--watch=gone=http://127.0.0.1:9/")[1]
    return url


@pytest.mark.extended
def test_dashboard_does_not_scroll_horizontally(open_page: OpenPage, wide: str) -> None:
    page = open_page()
    page.go(wide)
    page.until(" && ".join(f"{cell(service, 'Age')} !== '\\u2013'" for service in WIDE))
    page.until(f"{cell('255.255.255.253:65535', 'Lag')} === '9,007,199,254,740,991'")
    for width in (1024, 1100, 1280, 1440, 1920):
        page.size(width, 900)
        assert page.run("document.documentElement.scrollWidth") <= width, width
        assert page.run(TOO_WIDE) == [], width
        page.keep(f"dashboard-{type(page).__name__.lower()}-{width}")


@pytest.mark.extended
def test_dashboard_url_selects_stream_and_filter(open_page: OpenPage, start_query: StartQuery, tmp_path: Path) -> None:
    page = open_page()
    stream = "fyrehose://a b&c=%"
    with closing(open_journal(tmp_path / "kept", stream)) as journal:
        journal.append([Record(stream, 0, n, 1_700_000_000_000_000, b'{"n": %d}' % n) for n in range(1, 6)])
    _, url = start_query(tmp_path / "kept")
    shown = "[...document.querySelectorAll('#list .number:first-child')].map((one) => Number(one.textContent))"
    page.go(url)
    page.until("document.querySelectorAll('#streams tbody a').length === 1")
    page.run("document.querySelector('#streams tbody a').click()")
    page.until("document.querySelectorAll('#list li').length === 5")
    unfiltered = page.run("location.href")
    page.run("document.getElementById('where').focus()")
    page.type("n > `3` && n != `5`")
    page.key("Enter")
    page.until("document.querySelectorAll('#list li').length === 1")
    filtered = page.run("location.href")
    assert unfiltered.startswith(f"{url}#stream=")
    assert filtered != unfiltered

    # Another browser shows the same, and so does the back button.
    other = open_page()
    other.go(filtered)
    other.until("document.querySelectorAll('#list li').length === 1")
    assert other.run(shown) == [4]
    assert other.run("document.getElementById('where').value") == "n > `3` && n != `5`"
    other.until(f"document.getElementById('records-title').textContent === {json.dumps(stream)}")
    other.run(f"location.href = {json.dumps(unfiltered)}; 0")
    other.until("document.querySelectorAll('#list li').length === 5")
    other.run("document.getElementById('close').click()")
    other.until("!document.getElementById('records').open && location.hash === ''")
    assert other.run("location.href") == url
    other.run("history.back()")
    other.until("document.getElementById('records').open && document.querySelectorAll('#list li').length === 1")
    other.run("location.hash = '#stream=nothing-of-the-kind'; 0")
    other.until("document.getElementById('where-error').textContent.includes('no such stream')")
    assert page.errors == other.errors == []


@pytest.mark.extended
def test_dashboard_url_is_followed_after_the_token_prompt(
    open_page: OpenPage, guarded: Guarded, tmp_path: Path
) -> None:
    page = open_page()
    _, program, url = guarded
    with closing(open_journal(tmp_path / "kept", "fyrehose://kept")) as journal:
        journal.append([Record("fyrehose://kept", 0, 1, 1_700_000_000_000_000, b"one")])
    program.wait_for("serves fyrehose://kept")
    page.go(f"{url}#stream=fyrehose-kept")
    page.until("!document.getElementById('login').hidden")
    assert page.run("document.getElementById('records').open") is False
    page.type("correct-horse-battery")
    page.key("Enter")
    page.until("document.querySelectorAll('#list li').length === 1")
    assert page.run("location.hash") == "#stream=fyrehose-kept"
    assert page.errors == []


@pytest.mark.extended
def test_token_entered_before_the_close_of_the_record_list_is_kept(
    open_browser: OpenBrowser, guarded: Guarded, tmp_path: Path
) -> None:
    page = open_browser()
    _, program, url = guarded
    with closing(open_journal(tmp_path / "kept", "fyrehose://kept")) as journal:
        journal.append([Record("fyrehose://kept", 0, 1, 1_700_000_000_000_000, b"one")])
    program.wait_for("serves fyrehose://kept")
    page.before_scripts("sessionStorage.setItem('token', 'correct-horse-battery')")
    page.go(f"{url}#stream=fyrehose-kept")
    page.until("document.querySelectorAll('#list li').length === 1")
    # The browser reports the close of a dialog in a task of its own, after pending input, here after all of this.
    page.run("logIn(''); byId('token').value = 'correct-horse-battery'; byId('login').requestSubmit()")
    page.until("document.querySelectorAll('#list li').length === 1")
    page.until("byId('follow-state').textContent === 'Following'")
    page.run("byId('close').click()")
    page.until("location.hash === '' && !byId('records').open")
    assert page.errors == []


@IN_ONE
@pytest.mark.extended
def test_dashboard_opened_later_shows_history_and_events(
    open_page: OpenPage, start_query: StartQuery, canned: Canned, await_true: AwaitTrue, tmp_path: Path
) -> None:
    page = open_page()
    stream = "fyrehose://default"
    journal = open_journal(tmp_path / "kept", stream)
    journal.append([Record(stream, 0, 1, 1_700_000_000_000_000, b"x")])
    journal.commit()
    backbone = canned('info{service="backbone",stream="fyrehose://default"} 1', "backbone_sequence 1000001")
    program, url = start_query(tmp_path / "kept", f"--watch=backbone={backbone}")

    def told(path: str) -> Any:
        with urlopen(url + path, timeout=DEADLINE) as response:
            return json.load(response)

    # Lost while no page was open; and a million messages behind the backbone.
    await_true(lambda: told("overview")["streams"], lambda: program)
    journal.lose(0, 2, 6_610)
    journal.commit()
    await_true(lambda: told("overview")["events"], lambda: told("overview"))
    await_true(lambda: any(rate is not None for rate in told("history")["series"]["stream fyrehose-default"]), told)
    journal.close()
    page.size(1400, 900)
    page.go(url)
    page.until("document.getElementById('events').textContent.includes('lost 6,609 messages for good')")
    page.until("document.querySelector('#streams path').getAttribute('d').startsWith('M')")
    page.until(f"document.getElementById('trouble').textContent === '! Attention: {stream}'")
    assert page.run("document.title") == "! fyrehose"
    page.until(f"{cell(stream, 'State')}.includes('messages behind')")
    assert page.run(cell(stream, "Lag")) == "993,391"
    page.keep("dashboard-attention")
    assert page.errors == []


@IN_ONE
@pytest.mark.extended
def test_dashboard_has_a_table_for_each_kind_of_service(
    open_page: OpenPage,
    start_query: StartQuery,
    start_cluster: StartCluster,
    canned: Canned,
    await_true: AwaitTrue,
    tmp_path: Path,
) -> None:
    page = open_page()
    (tmp_path / "kept").mkdir()
    cluster = start_cluster("east", "west", "north")
    watched = {name: f"{node.url}/metrics" for name, node in cluster.items()} | {
        # It has no sequence number yet, and the metrics of a client.
        "journal": canned('info{service="journal",stream="fyrehose://a"} 1', "client_connected 1", "client_missing 2"),
        # A service without a kind.
        "client": canned("client_connected 0", "client_sequence 41"),
        "hydra": canned(
            *('info{service="hydra",network="net"} 1', 'hydra_leader{leader="<i>b\u202e"} 1', "hydra_term 7"),
            *('hydra_role{role="leader"} 0', 'hydra_role{role="cohort"} 1', "hydra_irc_open 1"),
        ),
        "tree": canned(
            *('info{service="freenet"} 1', "freenet_location 0.25", "freenet_roots 2", "freenet_subscribers 5"),
            *('freenet_streams{phase="settled"} 12', 'freenet_streams{phase="searching"} 0'),
        ),
        "front": canned(
            'info{service="frontend"} 1', "frontend_backbone 1", 'frontend_failed_total{reason="timeout"} 3'
        ),
        "branch": canned(
            'info{service="relay"} 1', "client_connected 0", "relay_depth 3", "relay_clients 17", "relay_listeners 11"
        ),
        "query": canned('info{service="query"} 1', "query_sources 4"),
        "unknown": canned("unheard_of 1"),
    }
    _, url = start_query(tmp_path / "kept", *(f"--watch={name}={there}" for name, there in watched.items()))
    page.size(1400, 900)
    page.go(url)
    page.until(" && ".join(answers(name) for name in watched))
    page.until("document.getElementById('trouble').textContent.startsWith('! Attention: client')")

    # On a busy machine the leader may change; the page shows it within seconds.
    for name in cluster:
        page.until(f"{cell(name, 'Mode')} === 'Wrk' && {cell(name, 'Members alive')} === '3 of 3'")
    leaders = "[" + ", ".join(cell(name, "Leader") for name in cluster) + "]"
    await_true(lambda: page.run(leaders) == [cluster.leader.name] * 3, lambda: page.run(leaders))
    shown = {
        ("journal", "Stream"): "fyrehose://a",
        ("journal", "Missing now"): "2",
        ("journal", "Complete to"): "\N{EN DASH}",
        ("client", "Backbone"): "✗ no reply",
        ("client", "Delivered to"): "41",
        ("branch", "Parent"): "✗ no reply",
        ("branch", "Depth"): "3",
        ("branch", "Clients"): "17",
        ("branch", "By multicast"): "11",
        ("hydra", "Leader"): "<i>b\\u202e",
        ("hydra", "Role"): "cohort",
        ("hydra", "IRC"): "✓ on IRC",
        ("tree", "Streams"): "settled 12",
        ("tree", "Subscribers"): "5",
        ("front", "Failed, 5 min"): "0",
        ("query", "Journals"): "4",
    }
    assert {(row, title): page.run(cell(row, title)) for row, title in shown} == shown
    links = page.run("[...document.querySelectorAll('#table-links a')].map((one) => one.textContent)")
    assert links[1:4] == ["Journals 0", "Clusters 2", "Relays 1, 1 attention"]
    assert links[4:6] == ["Journal services 1", "Clients 1, 1 attention"]
    assert links[-2:] == ["Other services 1", "Events"]
    # Each link has a target.
    assert page.run("[...document.querySelectorAll('#table-links a')].every((one) => document.querySelector(one.hash))")

    # All figures are comparable; the killed node lags.
    leader = cluster.leader
    gone, other = (node for node in cluster.values() if node is not leader)
    gone.kill()
    page.until(f"{cell(gone.name, 'State')}.startsWith('✗')")
    for number in range(1, 4):
        assert leader.publish(b"%d" % number) == number
    page.until(f"{cell(other.name, 'Last event')} === '3' && {cell(gone.name, 'Lag')} === '3'")
    page.until(f"{cell(leader.name, 'Members alive')}.startsWith('2 of')")
    page.keep("dashboard-services")
    assert page.errors == []


@IN_ONE
@pytest.mark.extended
def test_dashboard_lists_backbone_clients_with_rates_and_lag(
    open_page: OpenPage,
    start_query: StartQuery,
    start_backbone: StartBackbone,
    start_journal: StartJournal,
    start: Start,
    await_true: AwaitTrue,
    tmp_path: Path,
) -> None:
    page = open_page()
    backbone = start_backbone("--metrics=tcp:0")
    metrics = backbone.program.wait_for(r"metrics at (http://\S+)")[1]
    journal = start_journal(backbone, "kept")
    follower = start("fyrehose", "sub", "-b", backbone.text)
    backbone.wait_for_clients(2)
    _, url = start_query(tmp_path / "kept", "--watch", f"backbone={metrics}")
    page.size(1024, 900)
    page.go(url)

    def client(kind: str, title: str) -> str:
        rows = "[...document.querySelectorAll('#connected tbody tr')]"
        of_kind = f"{rows}.find((row) => row.querySelector('[data-label=Kind]').textContent === {json.dumps(kind)})"
        return f"{of_kind}?.querySelector('td[data-label={json.dumps(title)}]').textContent"

    page.until(f"{client('durable journal', 'Served by')} === 'backbone'")
    page.until(f"{client('subscriber', 'Lag')} === 'unknown'")
    page.until(f"{client('durable journal', 'Sent/s')} === '0'")
    published, sent = cell("without KEEPALIVE", "Published/s"), client("subscriber", "Sent bytes/s")
    listed = "[...document.querySelectorAll('tbody th')].some((one) => one.textContent === 'without KEEPALIVE')"
    flowing = f"{listed} && parseFloat({published}) > 0 && parseFloat({sent}) > 0"
    push = encode_push(b"x" * 100)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        # Publishers without KEEPALIVE are not clients, and are listed all the same.
        await_true(lambda: [sender.sendto(push, backbone.address)] and page.run(flowing), lambda: page.run(flowing))
    journal.wait_for(backbone.sequence)
    page.until(f"{client('durable journal', 'Lag')} === '0'")
    page.keep("dashboard-clients")
    assert page.run("document.documentElement.scrollWidth") <= 1024

    # A client that leaves is not listed any more.
    follower.signal(signal.SIGTERM).finish()
    page.until(f"{client('subscriber', 'Lag')} === undefined")
    # An outdated list is marked as such.
    backbone.program.signal(signal.SIGKILL).finish()
    page.until("document.getElementById('connected').textContent.includes('outdated')")
    assert page.run("document.querySelectorAll('#connected tr.stale').length") > 0
    assert page.errors == []


@IN_ONE
@pytest.mark.extended
def test_dashboard_shows_the_metrics_of_real_services(
    open_page: OpenPage,
    start_query: StartQuery,
    start_backbone: StartBackbone,
    start_ircd: StartIrcd,
    start: Start,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    page, backbone, ircd = open_page(), start_backbone(), start_ircd("ngircd")
    (tmp_path / "kept").mkdir()
    options: dict[str, list[object]] = {"up": ["--bootstrap"], "down": []}
    ports = {name: free_port() for name in options}
    key = "name:news"

    def twistd(service: str, *words: object) -> tuple[Program, str]:
        """Return a service and the URL of its metrics."""
        program = start("twistd", "-n", "--pidfile=", service, *words, cwd=tmp_path, stderr=subprocess.STDOUT)
        option = "http" if service == "fyrehose-frontend" else "metrics"
        return program, program.wait_for(rf"--{option}: listening on (127.0.0.1:\d+)")[1]

    frontend, front = twistd("fyrehose-frontend", "--backbone", backbone.text, "--http=tcp:0", "--lines=tcp:0")
    watched = {"front": front}
    lines = int(frontend.wait_for(r"--lines: listening on 127.0.0.1:(\d+)")[1])
    for name, other in (("up", "down"), ("down", "up")):
        link = f"tcp:127.0.0.1:{ports[other]}"
        _, watched[f"hydra-{name}"] = twistd(
            *(
                "hydra-node",
                "--tag",
                name,
                "--network-size=2",
                "--timescale=0.1",
                f"--state={name}.state",
                "--listen",
                f"tcp:{ports[name]}",
            ),
            *("--link", link, "--irc", ircd.address, "--channel=#c", "--metrics=tcp:0", *options[name]),
        )
    root, watched["tree-root"] = twistd(
        "freenet-node", "--listen=tcp:0", "--location=0.5", "--subscribe", key, "--metrics=tcp:0"
    )
    parent = root.wait_for(r"--listen: listening on (127.0.0.1:\d+)")[1]
    control = f"unix:{tmp_path / 'leaf'}"
    _, watched["tree-leaf"] = twistd(
        *("freenet-node", "--listen=tcp:0", "--location=0.6", "--peer", parent, "--subscribe", key),
        *("--control", control, "--metrics=tcp:0"),
    )
    with socket.create_connection(("127.0.0.1", lines), DEADLINE) as connection:
        connection.sendall(b"one\ntwo\n")
        assert connection.makefile("rb").readline() == b"1\n"
        _, url = start_query(
            tmp_path / "kept", *(f"--watch={name}=http://{place}/metrics" for name, place in watched.items())
        )
        page.size(1400, 900)
        page.go(url)
        page.until(" && ".join(answers(name) for name in watched))

        page.until(f"{cell('front', 'Line connections')} === '1'")

        # One of the two leads, both name it and its term, and only the leader is on IRC. All in one look, because on a
        # busy machine the leader may change at any moment.
        def led_by(leads: str, other: str) -> str:
            shown = {
                (leads, "Role"): "leader",
                (other, "Role"): "cohort",
                (leads, "Leader"): leads,
                (other, "Leader"): leads,
                (leads, "IRC"): "✓ on IRC",
                (other, "IRC"): "\N{EN DASH}",
            }
            term, terms = cell(f"hydra-{leads}", "Term"), cell(f"hydra-{other}", "Term")
            said = [f"{cell(f'hydra-{name}', title)} === {json.dumps(text)}" for (name, title), text in shown.items()]
            return " && ".join([*said, f"{term} === {terms}", f"{term} !== '0'"])

        page.until(f"({led_by('up', 'down')}) || ({led_by('down', 'up')})")
        # Both belong to the tree; one is its root, and the other is below it.
        page.until(f"{cell('tree-root', 'Streams')} === 'settled 1' && {cell('tree-leaf', 'Streams')} === 'settled 1'")
        page.until(f"{cell('tree-leaf', 'Location')} === '0.6000'")
        page.until(f"{cell('tree-root', 'Neighbours')} === '1' && {cell('tree-leaf', 'Neighbours')} === '1'")
        roots = [cell(name, "Root of") for name in ("tree-root", "tree-leaf")]
        page.until(f"[{', '.join(roots)}].sort().join() === '0,1'")
        page.keep("dashboard-house")

    # A killed service is shown as down.
    frontend.signal(signal.SIGKILL).finish()
    page.until(f"{cell('front', 'State')}.startsWith('✗')")
    assert page.errors == []


@pytest.mark.extended
def test_dashboard_resumes_after_a_restart_of_the_query_service(
    open_page: OpenPage, start_query: StartQuery, free_port: Callable[[], int], tmp_path: Path
) -> None:
    page = open_page()
    stream, first = "freenet://" + 64 * "ab", 2**61 + 1

    def put(*numbers: int) -> None:
        with closing(open_journal(tmp_path / "kept", stream)) as journal:
            journal.append(
                [
                    Record(stream, 3, first + number, 1_700_000_000_000_000, b'{"n":%d}' % (first + number))
                    for number in numbers
                ]
            )

    def seen() -> Any:
        return page.run("[...document.querySelectorAll('#list .number:first-child')].map((one) => one.textContent)")

    put(0, 1)
    options = ("--http", f"tcp:{free_port()}")
    program, url = start_query(tmp_path / "kept", *options)
    page.size(1400, 900)
    page.go(url)
    # All digits are shown, though no double has as many.
    page.until(f"{cell(stream, 'Newest')} === '3:{first + 1:,}'")
    page.run("document.querySelector('#streams tbody a').click()")
    page.until("document.querySelectorAll('#list li').length === 2")
    assert seen() == [f"3:{first + 1}", f"3:{first}"]
    assert page.run("document.querySelector('#list .payload').textContent") == f'{{"n":{first + 1}}}'

    # While it waits nothing is lost and the layout does not move.
    page.run("document.getElementById('pause').click()")
    put(2)
    page.until("document.getElementById('waiting').textContent === '(1 newer record)'")
    assert len(seen()) == 2
    page.run("document.getElementById('pause').click()")
    page.until("document.querySelectorAll('#list li').length === 3")

    # A silent service is not considered alive.
    if isinstance(page, Browser):  # In Firefox the test cannot change them, and takes longer.
        page.run("TIMEOUT.overview = TIMEOUT.records = 2; RETRY.fill(0.2)")
    before = page.run("document.getElementById('updated').textContent")
    page.until(f"document.getElementById('updated').textContent !== {json.dumps(before)}")
    program.signal(signal.SIGSTOP)
    page.until("document.getElementById('state').classList.contains('bad')")
    program.signal(signal.SIGKILL).finish()
    put(3, 4)
    start_query(tmp_path / "kept", *options)
    page.until("document.getElementById('state-text').textContent === 'Live'")
    page.until("document.querySelectorAll('#list li').length === 5")
    assert seen() == [f"3:{first + number}" for number in (4, 3, 2, 1, 0)]
    assert page.errors == []


@pytest.mark.extended
def test_dashboard_stays_responsive_with_200_streams(
    open_page: OpenPage, start_query: StartQuery, tmp_path: Path
) -> None:
    page = open_page()
    for number in range(200):
        stream = f"fyrehose://stream-{number:03}"
        journal = open_journal(tmp_path / "kept", stream)
        journal.append([Record(stream, 0, 1, 1_700_000_000_000_000, b"<img src=x onerror=alert(1)>\x1b[2J")])
        journal.close()
    _, url = start_query(tmp_path / "kept")
    page.size(1400, 900)
    page.go(url)
    page.until("document.querySelectorAll('#streams tbody tr').length === 200")
    page.run("window.kept = document.querySelector('#streams tbody tr')")
    before = page.run("document.getElementById('updated').textContent")
    page.until(f"document.getElementById('updated').textContent !== {json.dumps(before)}")
    # The same row element is kept: only changed parts are updated.
    assert page.run("window.kept === document.querySelector('#streams tbody tr')")
    if isinstance(page, Browser):  # Firefox reports no layout shifts.
        moved = page.run(SHIFTS)
        assert moved["shifts"] == []
        print(f"an update takes up to {moved['took']:.1f} ms")
    # Data from the network is never markup.
    page.run("document.querySelector('#streams tbody a').click()")
    page.until("document.querySelectorAll('#list li').length === 1")
    assert page.run("document.querySelector('#list .payload').textContent") == "<img src=x onerror=alert(1)>\\u001b[2J"
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.errors == []
