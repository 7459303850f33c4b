"""Link policies: which links a node seeks, accepts and gives up.

``SmallWorldLinks`` and ``DensityLinks`` follow the two strategies that freenet-core's ``topology-sim`` compares
(pull request 3023 of freenet/freenet-core). ``RandomLinks`` is a baseline.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from math import exp, log
from random import Random

from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.wire.location import distance
from fyrehose_twisted.interfaces import ILinkPolicy

MIN_LINKS, MAX_LINKS = 10, 20
"""Default limits of the links of a node, those of the published study for up to 3,000 nodes."""
DEMAND_WINDOW = 200
"""Requests that a density map consists of."""
DENSITY_THRESHOLD = 5
"""Links below which a node of :class:`DensityLinks` seeks its own location."""
MIN_DENSITY_DISTANCE = 0.001
"""Minimum distance that a demand is divided by."""
MIN_LENGTH = 1e-8
"""Minimum length of a link that :class:`SmallWorldLinks` draws."""


@dataclass(frozen=True, slots=True)
class LinkView:
    """Everything that a link policy sees of a network: one node, its links, and the nodes nearest to it.

    :ivar node: number of the node.
    :ivar location: location of the node.
    :ivar links: number and location of each neighbour.
    :ivar nearest: the same of the nodes nearest to it on the ring, linked or not, the nearest first.
    """

    node: int
    location: float
    links: tuple[tuple[int, float], ...]
    nearest: tuple[tuple[int, float], ...]


class _CappedLinks:
    """Limits of the number of links.

    :raises ConfigurationError: unless ``1 <= min_links <= max_links``.
    """

    introduces = False

    def __init__(self, min_links: int = MIN_LINKS, max_links: int = MAX_LINKS) -> None:
        if not 1 <= min_links <= max_links:
            raise ConfigurationError(
                f"min_links={min_links!r}, max_links={max_links!r}: give 1 or more, and at most max_links"
            )
        self.min_links = min_links
        self.max_links = max_links

    def accepts(self, view: LinkView, candidate: float, rng: Random) -> bool:
        """Accept while there is room: a filter by distance would distort the distribution that targets create."""
        return len(view.links) < self.max_links


@implementer(ILinkPolicy)
class SmallWorldLinks(_CappedLinks):
    """Policy that draws the lengths of links with a probability in inverse proportion to the length.

    A node links to its nearest nodes first, and never gives up these links. Lengths of all others are uniformly
    distributed on a logarithmic scale from there to half of the ring. Of the others, a node gives up the one that is
    most similar in length to the next shorter one.
    """

    introduces = True

    def target(self, view: LinkView, rng: Random) -> float:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkPolicy.target`."""
        linked = {node for node, _ in view.links}
        for node, location in view.nearest:
            if node not in linked:
                return location
        shortest = max(distance(view.location, view.nearest[-1][1]), MIN_LENGTH) if view.nearest else MIN_LENGTH
        length = shortest * exp(rng.random() * log(0.5 / shortest))
        return (view.location + (length if rng.random() < 0.5 else -length)) % 1.0 % 1.0

    def surplus(self, view: LinkView, rng: Random) -> int | None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkPolicy.surplus`."""
        kept = {node for node, _ in view.nearest}
        others = sorted(
            (max(distance(view.location, location), MIN_LENGTH), node)
            for node, location in view.links
            if node not in kept
        )
        if len(others) < 2:
            return others[0][1] if others else None
        gaps = [log(others[index][0] / others[index - 1][0]) for index in range(1, len(others))]
        return others[gaps.index(min(gaps)) + 1][1]


@implementer(ILinkPolicy)
class DensityLinks(_CappedLinks):
    """Policy that seeks links between neighbours with much demand, near to itself, and gives up the longest link.

    Demand is uniform: each map of demand is of requests for random locations.
    """

    def target(self, view: LinkView, rng: Random) -> float:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkPolicy.target`."""
        if len(view.links) < DENSITY_THRESHOLD:
            return view.location
        places = sorted(location for _, location in view.links)
        middles = [_middle(place, places[(index + 1) % len(places)]) for index, place in enumerate(places)]
        # A request counts for the neighbour nearest to it: the borders of its share are the middles on either side.
        borders = sorted((middle, index) for index, middle in enumerate(middles))
        starts = [middle for middle, _ in borders]
        demand = [0] * len(places)
        for _ in range(DEMAND_WINDOW):
            before = borders[bisect(starts, rng.random()) - 1][1]
            demand[(before + 1) % len(places)] += 1
        scores = [
            (demand[index] + demand[(index + 1) % len(places)])
            / max(distance(view.location, middle), MIN_DENSITY_DISTANCE)
            for index, middle in enumerate(middles)
        ]
        return rng.choices(middles, scores)[0]

    def surplus(self, view: LinkView, rng: Random) -> int | None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkPolicy.surplus`."""
        return max(view.links, key=lambda link: distance(view.location, link[1]), default=(None, 0.0))[0]


@implementer(ILinkPolicy)
class RandomLinks(_CappedLinks):
    """Policy that seeks links to nodes at random locations, and gives up random ones."""

    introduces = True

    def target(self, view: LinkView, rng: Random) -> float:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkPolicy.target`."""
        return rng.random()

    def surplus(self, view: LinkView, rng: Random) -> int | None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkPolicy.surplus`."""
        return rng.choice(view.links)[0] if view.links else None


def _middle(place: float, following: float) -> float:
    """Return the location halfway on the ring from one location to the following one."""
    return (place + (following - place) % 1.0 / 2.0) % 1.0 % 1.0


LINK_POLICIES = {"small-world": SmallWorldLinks, "density": DensityLinks, "random": RandomLinks}
"""Link policies by their names on the command line."""
