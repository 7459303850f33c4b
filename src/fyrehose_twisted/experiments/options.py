"""Values of the options of ``tree-experiment``: topologies, policies and numbers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from math import inf
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.growth.growing_network import GrowingNetwork
from fyrehose_twisted.experiments.growth.link_policies import LINK_POLICIES
from fyrehose_twisted.experiments.simulated_network import Latency
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.freenet.policy import Policy

TOPOLOGIES = ("kleinberg", "random", "ring", "swapped", "grown", "file")
DEFAULT_NODES = 1_000
DEFAULT_DEGREE = 10.0
DEFAULT_ROUNDS = 100
DEFAULT_LINKS = "small-world"


def build_topology(options: argparse.Namespace) -> Topology:
    """Return the topology that the options describe.

    :raises ConfigurationError: if options are incompatible, or no such topology exists.
    :raises OSError: if a file cannot be read.
    """
    name, *rest = options.topology
    if name not in TOPOLOGIES:
        raise ConfigurationError(f"--topology {name}: choose one of {', '.join(TOPOLOGIES)}")
    if len(rest) != (name == "file"):
        problem = (
            "requires one file with links: --topology file FILE"
            if name == "file"
            else f"takes no argument; remove {rest[0]}"
        )
        raise ConfigurationError(f"--topology {name} {problem}")
    for option, where in (
        ("nodes", TOPOLOGIES[:-1]),
        ("degree", TOPOLOGIES[:-1]),
        ("lattice", ("kleinberg", "swapped")),
        ("rounds", ("swapped", "grown")),
        ("links", ("grown",)),
    ):
        if getattr(options, option) not in (None, False) and name not in where:
            raise ConfigurationError(f"--{option} does not apply to --topology {name}, only to {' and '.join(where)}")

    if name == "file":
        return Topology.from_file(rest[0], options.seed)
    n = DEFAULT_NODES if options.nodes is None else options.nodes
    degree = DEFAULT_DEGREE if options.degree is None else options.degree
    rounds = DEFAULT_ROUNDS if options.rounds is None else options.rounds
    if name == "grown":
        return _grow(n, degree, rounds, options)
    if name == "random":
        return Topology.random(n, degree, options.seed)
    if name == "ring":
        if degree % 2 or not 2 <= degree < n:
            raise ConfigurationError(
                f"--degree {degree:g}: in a ring it is even, half of it on either side, and less than --nodes {n}"
            )
        return Topology.ring(n, int(degree) // 2, options.seed)
    topology = Topology.kleinberg(n, degree, options.seed, options.lattice)
    if name == "kleinberg":
        return topology
    # Before the swaps, locations are independent of the links.
    locations = Topology.random(n, 0, options.seed + 1).locations
    return Topology.from_edges(topology.edges(), locations, name=topology.name).swap(rounds, options.seed)


def _grow(n: int, degree: float, rounds: int, options: argparse.Namespace) -> Topology:
    name = DEFAULT_LINKS if options.links is None else options.links
    if degree != int(degree) or not 2 <= degree < n:
        raise ConfigurationError(
            f"--degree {degree:g}: in a grown network it is the maximum of links, a whole number from 2 to {n - 1:,}"
        )
    network = GrowingNetwork(LINK_POLICIES[name](int(degree) // 2, int(degree)), options.seed)
    network.grow(n, rounds)
    return network.topology()


def parse_policy(texts: Sequence[str]) -> Policy:
    """Return the default policy with some values replaced.

    :param texts: settings ``NAME=VALUE``, one or several separated by commas in each text.
    :raises ConfigurationError: if a name is unknown, or its value is invalid.
    """
    defaults: dict[str, Any] = {setting.name: setting.default for setting in fields(Policy)}
    chosen: dict[str, Any] = {}
    for text in (part for setting_list in texts for part in setting_list.split(",")):
        name, equals, value = text.partition("=")
        if name not in defaults or not equals:
            close = "".join(f"; did you mean {known}?" for known in get_close_matches(name, defaults, 1))
            raise ConfigurationError(
                f"--policy {text}: give NAME=VALUE, NAME being one of {', '.join(defaults)}{close}"
            )
        kind = type(defaults[name])
        try:
            chosen[name] = {"yes": True, "no": False}[value] if kind is bool else kind(value)
        except (KeyError, ValueError):
            expected = {bool: "yes or no", int: "a whole number", float: "a number"}[kind]
            raise ConfigurationError(f"--policy {text}: {value!r} is not {expected}") from None
    return Policy(**chosen)


def parse_latency(text: str) -> Latency:
    """Return a latency in seconds, or a function that draws it from a range.

    :raises argparse.ArgumentTypeError: if ``text`` is neither.
    """
    low, colon, high = text.partition(":")
    minimum = parse_number(low)
    if not colon:
        return minimum
    maximum = parse_number(high)
    if maximum < minimum:
        raise argparse.ArgumentTypeError(f"{text!r}: write the lower number of a range first, such as 0.02:0.2")
    return lambda source, destination, rng: rng.uniform(minimum, maximum)


def parse_number(text: str) -> float:
    """Return a number.

    :raises argparse.ArgumentTypeError: if ``text`` is not a finite number of 0 or more.
    """
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not 0.0 <= value < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value


def parse_whole_number(text: str) -> int:
    """Return a whole number.

    :raises argparse.ArgumentTypeError: if ``text`` is not a whole number of 0 or more.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 30:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number; write it without separators")
    return int(text)
