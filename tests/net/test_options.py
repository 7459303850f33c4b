"""Options that the services share."""

from __future__ import annotations

import argparse
from collections import defaultdict
from importlib import import_module
from typing import Any

import pytest
from twisted.application.service import ServiceMaker
from twisted.plugins import fyrehose_twisted_plugins
from twisted.python.usage import UsageError

from fyrehose_twisted.parcels.cli.parser import add_parser

TAPS = {maker.tapname: maker for maker in vars(fyrehose_twisted_plugins).values() if isinstance(maker, ServiceMaker)}

DIFFERENT = {
    "backbone",
    "bootstrap",
    "directory",
    "http",
    "interface",
    "limits",
    "listen",
    "multicast",
    "name",
    "peer",
    "port",
    "protocol",
    "seal-key-file",
}
"""Options whose words depend on the service, because their meaning does."""


def options_of(tap: str) -> Any:
    return import_module(TAPS[tap].module).Options()


def letters_of(options: Any) -> dict[str, str]:
    """Return the option of each letter that the help text shows."""
    lines = [line.strip() for line in options.getUsage(10_000).splitlines()]
    shown = [line.split("=")[0].split() for line in lines if line.startswith("-") and not line.startswith("--")]
    return {letter.strip("-,"): name.removeprefix("--") for letter, name in shown}


def test_every_service_has_options() -> None:
    assert len(TAPS) == 9


def test_a_letter_stands_for_the_same_option_in_every_service() -> None:
    meanings = defaultdict(set)
    for tap in TAPS:
        for letter, name in letters_of(options_of(tap)).items():
            meanings[letter].add(name)
    assert {letter: names for letter, names in meanings.items() if len(names) > 1} == {}
    assert meanings.items() >= {"b": {"backbone"}, "c": {"control"}, "n": {"name"}, "r": {"retention"}}.items()


def test_an_option_has_the_same_help_text_in_every_service() -> None:
    texts = defaultdict(set)
    for tap in TAPS:
        options = options_of(tap)
        for name in options.longOpt:
            name = name.rstrip("=")
            text = options.docs.get(name) or options.docs[name.replace("-", "_")]
            texts[name].add(text.partition(" [default")[0])
    assert {name for name, words in texts.items() if len(words) > 1} == DIFFERENT


@pytest.mark.parametrize(
    ("tap", "former", "option", "value"),
    [
        ("hydra-node", "--found", "bootstrap", None),
        ("parcels-node", "--found", "bootstrap", None),
        ("parcels-node", "--cluster-secret-file", "secret-file", "FILE"),
        ("fyrehose-backbone", "--max-subscribers", "max-clients", "7"),
        ("hydra-node", "-n", "network", "net"),
        ("hydra-node", "-s", "network-size", "5"),
        ("parcels-node", "-c", "cluster", "trades"),
        ("fyrehose-backbone", "-f", "forward", "random"),
        ("fyrehose-backbone", "-s", "state", "FILE"),
        ("fyrehose-journal", "-f", "fsync", "batch"),
        ("freenet-node", "-p", "peers", "a:1"),
        ("freenet-node", "-s", "streams", "name:n"),
    ],
)
def test_former_names_are_accepted_and_not_shown(
    tap: str, former: str, option: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(tap)
    monkeypatch.setattr(options, "postOptions", lambda: None)
    before = options.getUsage()
    options.parseOptions([former] if value is None else [former, value])
    expected = {None: 1, "7": 7, "5": 5, "a:1": ["a:1"], "name:n": ["name:n"]}.get(value, value)
    assert options[option] == expected
    assert options.getUsage() == before
    shown = f" {former}, " if len(former) == 2 else former
    assert shown not in before


def test_a_former_letter_that_is_unknown_elsewhere_is_refused() -> None:
    with pytest.raises(UsageError, match="option -f not recognized"):
        options_of("hydra-node").parseOptions(["-f", "x"])


def test_former_letters_of_a_command_are_accepted_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    options = parser.parse_args(["parcels", "publish", "-n", "a:1", "-c", "trades"])
    assert (options.node, options.cluster) == (["a:1"], "trades")
    with pytest.raises(SystemExit):
        parser.parse_args(["parcels", "publish", "--help"])
    shown = capsys.readouterr().out
    assert "--node HOST:PORT" in shown
    assert "-n" not in shown.split()
