"""Topology of a network: locations and links of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import ArrayLike, NDArray

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.adjacency import (
    MAX_NODES,
    LinkKeys,
    Locations,
    Nodes,
    Starts,
    build_adjacency,
    link_keys,
    neighbour_positions,
)
from fyrehose_twisted.experiments.topologies.generators import (
    kleinberg_links,
    random_links,
    reference_links,
    ring_links,
)
from fyrehose_twisted.experiments.topologies.links_file import (
    LinksFile,
    is_number,
    number_names,
    read_links,
    write_links,
)
from fyrehose_twisted.experiments.topologies.location_swapping import RESET_PROBABILITY, WALK_LENGTH, swap_locations
from fyrehose_twisted.freenet.wire.location import is_location


@dataclass(frozen=True, eq=False, slots=True)
class Topology:
    """Immutable set of nodes, numbered from 0, with their locations and links. Create one with the class methods.

    Equal arguments create equal topologies with the same version of numpy. The arrays are read-only.

    :ivar name: description of how the topology was created.
    :ivar locations: location of each node.
    :ivar indptr: position of each node's first neighbour in ``indices``, followed by the length of ``indices``.
    :ivar indices: neighbours of each node in ascending order. Each link appears twice, once per end.
    :ivar labels: names of the nodes in their source; empty if they are the numbers.
    :ivar repeated: number of duplicate links, in either direction, that were dropped.
    """

    name: str
    locations: Locations = field(repr=False)
    indptr: Starts = field(repr=False)
    indices: Nodes = field(repr=False)
    labels: tuple[str, ...] = field(default=(), repr=False)
    repeated: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        for array in (self.locations, self.indptr, self.indices):
            array.setflags(write=False)

    @classmethod
    def kleinberg(
        cls, n: int, degree: float, seed: int, lattice: bool = False, *, draw: Literal["exact", "reference"] = "exact"
    ) -> Topology:
        """Return a topology of Kleinberg's model.

        Locations are uniformly distributed. Each node draws the same number of links, with a probability in inverse
        proportion to the distance, measured in ranks on the ring. A node thus has about the same number of links per
        power of 2 of their length. Existing links are redrawn.

        :param degree: mean number of links per node. A node draws half of them; the others are drawn by other nodes.
        :param lattice: also link each node to its two neighbours on the ring, so that greedy routing always succeeds.
            These links count towards ``degree``.
        :param draw: ``exact`` as above, or ``reference`` as in the simulation behind the reference figures. There, link
            lengths are rounded powers of n / 2 with uniform exponents, and duplicate links are not replaced: links to
            the next node are 2.5 times as rare, and nodes have fewer links than ``degree``. Nodes are numbered in the
            order of their locations.
        :raises ConfigurationError: if so many links, or with ``lattice`` so few, are impossible.
        """
        if draw not in ("exact", "reference"):
            raise ConfigurationError(f"draw={draw!r}: choose one of exact, reference")
        links = _count_links(n, degree, 3 if lattice else 2)
        ring = ring_links(n, 1) if lattice else np.empty(0, np.int64)
        if links < len(ring):
            raise ConfigurationError(f"degree={degree!r}: the lattice alone gives each node 2 links")
        rng = _generator(seed)
        if draw == "reference":
            if degree != int(degree):
                raise ConfigurationError(f"degree={degree!r}: with draw='reference' it is a whole number")
            edges = reference_links(n, int(degree), rng, lattice=lattice)
            name = f"kleinberg(n={n}, degree={degree}, seed={seed}{', lattice=True' if lattice else ''}, draw={draw!r})"
            return cls.from_edges(edges, np.sort(rng.random(n)), n=n, name=name)
        locations = rng.random(n)
        keys = kleinberg_links(n, links - len(ring), rng, ring)
        name = f"kleinberg(n={n}, degree={degree}, seed={seed}{', lattice=True' if lattice else ''})"
        return cls._on_ring(name, locations, keys)

    @classmethod
    def random(cls, n: int, degree: float, seed: int) -> Topology:
        """Return a topology with links independent of the locations, which are uniformly distributed.

        Each node draws the same number of links.

        :param degree: mean number of links per node.
        :raises ConfigurationError: if so many links are impossible.
        """
        links = _count_links(n, degree, 2)
        rng = _generator(seed)
        locations = rng.random(n)
        name = f"random(n={n}, degree={degree}, seed={seed})"
        return cls(name, locations, *build_adjacency(random_links(n, links, rng), n))

    @classmethod
    def ring(cls, n: int, reach: int = 1, seed: int = 0) -> Topology:
        """Return a topology in which each node is linked to the next ``reach`` nodes on either side.

        Nodes are numbered in the order of their random locations.

        :raises ConfigurationError: if there are too few nodes.
        """
        _check_count("n", n, 2, MAX_NODES)
        _check_count("reach", reach, 1, n // 2)
        locations = np.sort(_generator(seed).random(n))
        return cls(f"ring(n={n}, reach={reach}, seed={seed})", locations, *build_adjacency(ring_links(n, reach), n))

    @classmethod
    def from_edges(
        cls,
        edges: ArrayLike | Iterable[tuple[int, int]] | Iterable[tuple[str, str]],
        locations: ArrayLike | None = None,
        seed: int = 0,
        *,
        n: int | None = None,
        name: str = "edges",
    ) -> Topology:
        """Return the topology of given links.

        :param edges: pairs of node numbers from 0, or of names. Names are numbered as in a file, see
            :mod:`~fyrehose_twisted.experiments.topologies.links_file`.
        :param locations: location of each node; random by default.
        :param seed: seed for random locations.
        :param n: number of nodes; by default up to the highest that has a link or a location.
        :raises ConfigurationError: if a link leads from a node to itself or to a missing node, if the number of
            locations differs from that of nodes, or if a location is outside 0 to 1.
        """
        return cls._from_links(name, _parse_edges(edges), locations, seed, n)

    @classmethod
    def from_file(cls, path: str | Path, seed: int = 0) -> Topology:
        """Return the topology in a file; see :mod:`~fyrehose_twisted.experiments.topologies.links_file`.

        :param seed: seed for the locations that are not in the file.
        :raises ConfigurationError: if the file is malformed; the error names the line.
        :raises OSError: if the file cannot be read.
        """
        found = read_links(Path(path))
        if not found.names:
            raise ConfigurationError(f"{path} has no links and no nodes")
        return cls._from_links(Path(path).name, found, None, seed, len(found.names))

    @classmethod
    def from_networkx(cls, graph: Any, seed: int = 0, *, location: str = "location") -> Topology:
        """Return the topology of an undirected graph of networkx, or of any object with its ``nodes`` and ``edges``.

        The names of the nodes, as text, are their labels. If all are whole numbers, nodes are numbered in their order,
        otherwise in that of the graph.

        :param seed: seed for the locations of nodes without one.
        :param location: name of the attribute of nodes that is their location.
        :raises ConfigurationError: if the graph is directed or empty, two names are equal as text, a link leads from a
            node to itself, or a location is outside 0 to 1.
        """
        if graph.is_directed():
            raise ConfigurationError("the graph is directed, but links have no direction; use graph.to_undirected()")
        names = list(graph.nodes)
        if not names:
            raise ConfigurationError("the graph has no nodes")
        if all(is_number(str(name)) for name in names):
            names.sort(key=lambda name: int(str(name)))
        numbers = {name: number for number, name in enumerate(names)}
        labels = tuple(map(str, names))
        if len(set(labels)) < len(labels):
            twice = next(label for label, count in Counter(labels).items() if count > 1)
            raise ConfigurationError(f"several nodes are named {twice!r} as text; rename them")
        edges = np.array([(numbers[one], numbers[other]) for one, other in graph.edges()], np.int64).reshape(-1, 2)
        locations = {}
        for name, attributes in graph.nodes(data=True):
            place = attributes.get(location)
            if place is not None:
                if not is_location(place):
                    raise ConfigurationError(f"{location}={place!r} of node {name!r}: it goes from 0 up to, not to, 1")
                locations[numbers[name]] = float(place)
        kind = f"networkx(n={len(names)}, seed={seed})"
        return cls._from_links(kind, LinksFile(labels, edges, locations), None, seed, len(names))

    @classmethod
    def _from_links(
        cls, name: str, found: LinksFile, locations: ArrayLike | None, seed: int, n: int | None
    ) -> Topology:
        given = None if locations is None else _check_locations(locations)
        ends = found.edges
        minimum = max(int(ends.max(initial=-1)) + 1, 0 if given is None else len(given))
        count = minimum if n is None else n
        _check_count("n", count, 1, MAX_NODES)
        if len(ends) and not 0 <= ends.min() <= ends.max() < count:
            row = int(np.flatnonzero(((ends < 0) | (ends >= count)).any(axis=1))[0])
            raise ConfigurationError(f"edge {row}, {tuple(ends[row].tolist())}: nodes are 0 to {count - 1}")
        loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
        if len(loops):
            node = int(ends[loops[0], 0])
            raise ConfigurationError(f"edge {int(loops[0])} links node {node} to itself; leave it out")
        if given is not None and len(given) != count:
            raise ConfigurationError(f"{len(given)} locations for {count} nodes: each node needs one")
        keys = np.unique(link_keys(ends[:, 0], ends[:, 1], count))
        drawn = _generator(seed).random(count)
        for node, location in found.locations.items():
            drawn[node] = location
        arrays = build_adjacency(keys, count)
        labels = () if found.names == tuple(map(str, range(len(found.names)))) else found.names
        return cls(name, drawn if given is None else given, *arrays, labels, len(ends) - len(keys))

    @classmethod
    def _on_ring(cls, name: str, locations: Locations, keys: LinkKeys) -> Topology:
        # Node numbers are independent of locations, so nodes 0 to 9 are a random sample.
        n = len(locations)
        order = np.argsort(locations, kind="stable").astype(np.int32)
        low, high = np.divmod(keys, n)
        return cls(name, locations, *build_adjacency(link_keys(order[low], order[high], n), n))

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.locations)

    @property
    def links(self) -> int:
        """Number of links."""
        return len(self.indices) // 2

    def neighbours(self, node: int) -> Nodes:
        """Return the neighbours of a node, in ascending order.

        :raises IndexError: if the node does not exist.
        """
        if not 0 <= node < self.n:
            raise IndexError(f"node {node} is outside 0 to {self.n - 1}")
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def degrees(self) -> NDArray[np.int64]:
        """Return the number of neighbours of each node."""
        return np.diff(self.indptr)

    def edges(self) -> Nodes:
        """Return each link once, in ascending order, as rows of two nodes with the lower one first."""
        ones = np.repeat(np.arange(self.n, dtype=np.int32), self.degrees())
        upward = ones < self.indices
        return np.column_stack((ones[upward], self.indices[upward]))

    def label(self, node: int) -> str:
        """Return the name of a node in its source."""
        return self.labels[node] if self.labels else str(node)

    def numbers_by_label(self) -> dict[str, int]:
        """Return the number of each node by its name in its source."""
        return {label: number for number, label in enumerate(self.labels or map(str, range(self.n)))}

    def is_connected(self) -> bool:
        """Return True if all nodes are connected."""
        seen = np.zeros(self.n, np.bool_)
        seen[0] = True
        border = np.zeros(1, np.int64)
        while len(border):
            places, _, _ = neighbour_positions(self.indptr, border)
            found = self.indices[places]
            border = np.unique(found[~seen[found]]).astype(np.int64)
            seen[border] = True
        return bool(seen.all())

    def swap(
        self, rounds: int, seed: int = 0, *, walk: int = WALK_LENGTH, reset: float = RESET_PROBABILITY
    ) -> Topology:
        """Return the topology after nodes have swapped locations to fit the links.

        See :func:`~fyrehose_twisted.experiments.topologies.location_swapping.swap_locations`.

        :param rounds: mean number of attempts per node.
        :param walk: hops to the partner of an attempt.
        :param reset: probability that a node draws a new location instead of attempting a swap. With 0, the set of
            locations does not change.
        :raises ConfigurationError: if an argument is out of range.
        """
        _check_count("rounds", rounds, 0, 10**9)
        _check_count("walk", walk, 1, 10**6)
        if not 0.0 <= reset <= 1.0:
            raise ConfigurationError(f"reset={reset!r}: a probability goes from 0 to 1")
        rng = _generator(seed)
        locations = swap_locations(self.indptr, self.indices, self.locations, rounds, rng, walk=walk, reset=reset)
        return replace(self, name=f"{self.name}.swap(rounds={rounds}, seed={seed})", locations=locations)

    def to_networkx(self) -> Any:
        """Return a ``networkx.Graph`` of the nodes by number, with their ``location`` and ``label``.

        :raises ConfigurationError: if networkx is not installed.
        """
        try:
            import networkx
        except ModuleNotFoundError as error:
            if error.name != "networkx":
                raise
            install = "pip install 'fyrehose_twisted[graphs]'"
            raise ConfigurationError(f"networkx is not installed, which to_networkx needs: {install}") from error
        graph = networkx.Graph(name=self.name)
        graph.add_nodes_from(
            (node, {"location": location, "label": self.label(node)})
            for node, location in enumerate(self.locations.tolist())
        )
        graph.add_edges_from(self.edges().tolist())
        return graph

    def to_file(self, path: str | Path) -> None:
        """Write the topology to a file that :meth:`from_file` reads back unchanged.

        :raises ConfigurationError: if a label cannot be written, or the path is that of a CSV file.
        :raises OSError: if the file cannot be written.
        """
        names = self.labels or tuple(map(str, range(self.n)))
        write_links(Path(path), names, self.locations, self.edges())


def _generator(seed: int) -> Generator:
    _check_count("seed", seed, 0, 2**128)
    return Generator(PCG64(seed))


def _check_count(name: str, value: object, minimum: int, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not minimum <= value <= maximum:
        raise ConfigurationError(f"{name}={value!r}: it must be a whole number from {minimum} to {maximum}")


def _count_links(n: int, degree: float, min_nodes: int) -> int:
    _check_count("n", n, min_nodes, MAX_NODES)
    if not 0.0 <= degree <= n - 1:
        raise ConfigurationError(f"degree={degree!r}: with n={n} it goes from 0 to {n - 1}")
    return round(n * degree / 2)


def _parse_edges(edges: Any) -> LinksFile:
    array = edges if isinstance(edges, np.ndarray) else np.array(list(edges))
    if array.size == 0:
        return LinksFile((), np.empty((0, 2), np.int64), {})
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iuU":
        raise ConfigurationError(f"edges of shape {array.shape} and type {array.dtype}: pairs of numbers or names")
    if array.dtype.kind == "U":
        return number_names((one, other) for one, other in array.tolist())
    return LinksFile((), array.astype(np.int64), {})


def _check_locations(locations: ArrayLike) -> Locations:
    array = np.array(locations, np.float64)
    if array.ndim != 1:
        raise ConfigurationError(f"locations of shape {array.shape}: one number for each node")
    wrong = np.flatnonzero(~((array >= 0.0) & (array < 1.0)))
    if len(wrong):
        node = int(wrong[0])
        raise ConfigurationError(f"location {array[node]} of node {node}: it goes from 0 up to, but not including, 1")
    return array
