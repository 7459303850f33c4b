from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor as installed_reactor
from twisted.internet.endpoints import HostnameEndpoint, clientFromString

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.transports.link_url import EXAMPLES, LINES_PER_SECOND, LinkUrl, parse_link

reactor: Any = installed_reactor

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("tcp:192.0.2.7:6174", {"host": "192.0.2.7", "port": 6_174}),
    ("tcp:node.example.org:1", {"host": "node.example.org", "port": 1}),
    ("tcp:192.0.2.7:6174:legacy=yes", {"host": "192.0.2.7", "port": 6_174, "legacy": True}),
    ("tcp:192.0.2.7:6174:legacy=no", {"host": "192.0.2.7", "port": 6_174}),
    ("tcp:[::1]:6174", {"host": "::1", "port": 6_174}),
    (r"tcp:\:\:1:6174", {"host": "::1", "port": 6_174}),
    ("tcp:[2001:DB8:0::7]:65535", {"host": "2001:db8::7", "port": 65_535}),
    ("udp:192.0.2.7:6174", {"host": "192.0.2.7", "port": 6_174}),
    ("udp:[::1]:6174", {"host": "::1", "port": 6_174}),
    ("tls:node.example.org:6174", {"port": 6_174, "endpoint": "tls:node.example.org:6174"}),
    (
        r"tls:node.example.org:6174:trustRoots=/etc/a\:b\=c:timeout=5",
        {"port": 6_174, "endpoint": r"tls:node.example.org:6174:trustRoots=/etc/a\:b\=c:timeout=5"},
    ),
    (
        "irc:irc.example.org:6667:ivan:boris",
        {"host": "irc.example.org", "port": 6_667, "nick": "ivan", "peer": "boris", "rate": LINES_PER_SECOND},
    ),
    (
        r"irc:[::1]:6697:[i]v\\an:boris-2:rate=2.5:tls=yes:password-file=/etc/p\:w",
        {
            "host": "::1",
            "port": 6_697,
            "nick": r"[i]v\an",
            "peer": "boris-2",
            "rate": 2.5,
            "tls": True,
            "password_file": "/etc/p:w",
        },
    ),
    ("irc:irc.example.org:6667:ivan:boris:tls=no", {"host": "irc.example.org", "nick": "ivan", "peer": "boris"}),
    ("fifo:/run/hydra/ivan-boris", {"directory": "/run/hydra/ivan-boris"}),
    ("fifo:pipes:side=0", {"directory": "pipes", "side": 0}),
    (r"fifo:/run/a\:b\=c\\d [e]:side=1", {"directory": r"/run/a:b=c\d [e]", "side": 1}),
    ("fifo:[x", {"directory": "[x"}),
    ("fifo:/run/ä", {"directory": "/run/ä"}),
]

BAD: list[tuple[str, str]] = [
    ("", "kind must be one of tcp, tls, udp, irc, fifo"),
    ("192.0.2.7:6174", "kind must be one"),
    ("TCP:192.0.2.7:6174", "kind must be one"),
    ("unix:/run/x", "kind must be one"),
    ("tcp", "HOST:PORT"),
    ("tcp:", "HOST:PORT"),
    ("tcp:192.0.2.7", "HOST:PORT"),
    ("tcp::6174", "HOST:PORT"),
    ("tcp:192.0.2.7:", "HOST:PORT"),
    ("tcp:192.0.2.7:6174:", "HOST:PORT"),
    ("tcp:192.0.2.7:6174:7", "HOST:PORT"),
    ("tcp:::1:6174", "HOST:PORT"),
    ("tcp:[::1:6174", "HOST:PORT"),
    ("tcp:[::1]x:6174", "not a host"),
    ("tcp:[192.0.2.7]:6174", "not a host"),
    (r"tcp:\:\:x:6174", "not a host"),
    ("tcp:192.0.2.7:0", "not a host and a port from 1 to 65535"),
    ("tcp:192.0.2.7:65536", "not a host"),
    ("tcp:192.0.2.7:http", "not a host"),
    ("tcp:192.0.2.7:-1", "not a host"),
    ("tcp:a b:6174", "not a host"),
    ("tcp:a\nb:6174", "unprintable"),
    ("tcp:192.0.2.7:6174\n", "unprintable"),
    ("fifo:/run/\0", "unprintable"),
    ("tcp:192.0.2.7:6174:legacy", "HOST:PORT"),
    ("tcp:192.0.2.7:6174:legacy=", "legacy must be yes or no"),
    ("tcp:192.0.2.7:6174:legacy=true", "legacy must be yes or no"),
    ("tcp:192.0.2.7:6174:legacy=yes:legacy=yes", "twice"),
    ("tcp:192.0.2.7:6174:timeout=5", "'timeout' is not an option of tcp .options: legacy;"),
    ("tcp:192.0.2.7:legacy=yes:6174", "follows an option"),
    ("udp:192.0.2.7:6174:legacy=yes", "not an option of udp .options: none;"),
    ("tls:192.0.2.7:6174:legacy=yes", "is not an option of"),
    ("tls:[::1]:6174", "give a name"),
    ("tls:192.0.2.7:6174:timeout=soon", "number of seconds"),
    ("irc:irc.example.org:6667:ivan", "SERVER:PORT:NICK:PEER"),
    ("irc:irc.example.org:6667:ivan:boris:vera", "SERVER:PORT:NICK:PEER"),
    ("irc:irc.example.org:ivan:boris", "SERVER:PORT:NICK:PEER"),
    ("irc:irc.example.org:0:ivan:boris", "not a host"),
    ("irc:irc.example.org:6667:1van:boris", "'1van' is not a nick"),
    ("irc:irc.example.org:6667:ivan:bo ris", "'bo ris' is not a nick"),
    ("irc:irc.example.org:6667:ivan:#boris", "not a nick"),
    ("irc:irc.example.org:6667:ivan:" + "b" * 31, "not a nick"),
    ("irc:irc.example.org:6667:ivan:Ivan", "the same nick"),
    ("irc:irc.example.org:6667:i[an:I{AN", "the same nick"),
    ("irc:irc.example.org:6667:ivan:boris:rate=0", "rate must be above 0"),
    ("irc:irc.example.org:6667:ivan:boris:rate=nan", "rate must be above 0"),
    ("irc:irc.example.org:6667:ivan:boris:rate=inf", "rate must be above 0"),
    ("irc:irc.example.org:6667:ivan:boris:rate=fast", "rate must be above 0"),
    ("irc:irc.example.org:6667:ivan:boris:tls=1", "tls must be yes or no"),
    ("irc:irc.example.org:6667:ivan:boris:password-file=", "password-file is empty"),
    ("irc:irc.example.org:6667:ivan:boris:password=secret", "is not an option of"),
    ("fifo", "DIRECTORY"),
    ("fifo:", "DIRECTORY"),
    ("fifo:/run/a:b", "DIRECTORY"),
    ("fifo:[a:b]", "DIRECTORY"),
    ("fifo:/run/a=b", r"'/run/a' is not an option|DIRECTORY"),
    ("fifo:/run/a:side=2", "side must be 0 or 1"),
    ("fifo:/run/a:side=", "side must be 0 or 1"),
    ("fifo:/run/a\\", "backslash"),
]


@pytest.mark.parametrize(("text", "fields"), GOOD, ids=[text for text, _ in GOOD])
def test_link_string_is_parsed(text: str, fields: dict[str, Any]) -> None:
    spec = parse_link(text)
    assert (spec.kind, spec.text) == (text.split(":")[0], text)
    if spec.kind in ("tls", "irc"):
        fields = {"host": "node.example.org", "port": 6_667} | fields
    assert spec == LinkUrl(**{"kind": spec.kind, "text": text} | fields)


@pytest.mark.parametrize(("text", "why"), BAD, ids=[repr(text) for text, _ in BAD])
def test_error_of_a_link_string_contains_an_example(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        parse_link(text)
    said = str(caught.value)
    assert said.startswith(f"{text!r} is not a link: ")
    example = said.rpartition("for instance, ")[2]
    assert example == EXAMPLES[text.split(":")[0]] if text.split(":")[0] in EXAMPLES else EXAMPLES["tcp"]
    assert parse_link(example)


@pytest.mark.parametrize("example", EXAMPLES.values())
def test_examples_are_valid_links(example: str) -> None:
    assert parse_link(example).text == example


def test_link_url_is_immutable_and_hashable() -> None:
    spec = parse_link("tcp:192.0.2.7:6174")
    with pytest.raises(FrozenInstanceError):
        spec.port = 1  # type: ignore[misc]
    assert spec == parse_link("tcp:192.0.2.7:6174")
    assert len({spec, parse_link("tcp:192.0.2.7:6174")}) == 1


@pytest.mark.parametrize("host", ["node.example.org", "192.0.2.7"])
def test_tls_link_makes_a_twisted_endpoint_string(host: str) -> None:
    spec = parse_link(f"tls:{host}:6174:timeout=5")
    endpoint: Any = clientFromString(reactor, spec.endpoint)
    wrapped = endpoint._wrappedEndpoint
    assert isinstance(wrapped, HostnameEndpoint)
    assert (wrapped._hostText, wrapped._port) == (spec.host, 6_174)


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"]), min_size=1))
def test_link_url_accepts_any_directory(directory: str) -> None:
    text = directory.replace("\\", r"\\").replace(":", r"\:").replace("=", r"\=")
    assert parse_link(f"fifo:{text}").directory == directory
    assert parse_link(f"fifo:{text}:side=1").directory == directory


@given(st.sampled_from([*EXAMPLES, ""]), st.text() | st.text(":=\\[]0123ab", max_size=20))
def test_arbitrary_link_text_raises_only_configuration_errors(kind: str, text: str) -> None:
    try:
        spec = parse_link(f"{kind}:{text}")
    except ConfigurationError:
        return
    assert spec.text == f"{kind}:{text}"
