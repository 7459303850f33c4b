"""Import paths that earlier documentation showed. They work as before and warn."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object  # Their module imports much else, and Python does without them.

PACKAGE = "fyrehose_twisted"

MODULES = {
    "freenet.experiments": "experiments",
    "hydra.carriers": "hydra.transports",
    "spark.experiments": "experiments.sweep",
    "freenet.codec": "freenet.wire.codec",
    "freenet.control": "freenet.service.control",
    "freenet.experiments.experiment": "experiments.trials.experiment",
    "freenet.experiments.greedy": "experiments.topologies.greedy_routing",
    "freenet.experiments.page": "experiments.report.page",
    "freenet.experiments.recording": "experiments.report.trace_replay",
    "freenet.experiments.study": "experiments.measures.routing_stats",
    "freenet.experiments.svg": "experiments.report.svg",
    "freenet.experiments.topology": "experiments.topologies.topology",
    "freenet.keeping": "freenet.service.storage",
    "freenet.messages": "freenet.wire.messages",
    "freenet.signing": "freenet.wire.signing",
    "freenet.state": "freenet.node.status",
    "freenet.stream": "freenet.node.stream",
    "fyrehose.admission": "fyrehose.wire.token",
    "fyrehose.backbone": "fyrehose.node.backbone.backbone",
    "fyrehose.batch": "fyrehose.wire.run_codec",
    "fyrehose.client": "fyrehose.node.client.client",
    "fyrehose.codec": "fyrehose.wire.codec",
    "fyrehose.duties": "fyrehose.simulation.invariants.access",
    "fyrehose.envelope": "fyrehose.wire.envelope",
    "fyrehose.forwarding": "fyrehose.node.backbone.forwarding",
    "fyrehose.history": "fyrehose.node.client.memory_store",
    "fyrehose.invariants": "fyrehose.simulation.invariants.delivery",
    "fyrehose.journal_protocol": "fyrehose.protocol.journal",
    "fyrehose.losses": "fyrehose.simulation.invariants.repair",
    "fyrehose.messages": "fyrehose.wire.packets",
    "fyrehose.metrics": "fyrehose.service.metrics",
    "fyrehose.numbering": "fyrehose.node.backbone.sequencer",
    "fyrehose.outbox": "fyrehose.node.client.publishing.send_queue",
    "fyrehose.participants": "fyrehose.simulation.participants",
    "fyrehose.publisher_state": "fyrehose.protocol.publisher_file",
    "fyrehose.repair": "fyrehose.node.client.repair",
    "fyrehose.scenarios": "fyrehose.simulation.scenarios",
    "fyrehose.state": "fyrehose.service.state_file",
    "fyrehose.usage": "fyrehose.simulation.invariants.memory",
    "fyrehose.window": "fyrehose.node.client.publishing.congestion",
    "fyrehose.workload": "fyrehose.simulation.workload",
    "hydra.active": "hydra.irc.active",
    "hydra.bots": "hydra.irc.bots",
    "hydra.carriers.fifo": "hydra.transports.fifo",
    "hydra.carriers.fragments": "hydra.transports.notice_stream",
    "hydra.carriers.irc": "hydra.transports.irc",
    "hydra.carriers.proving": "net.auth",
    "hydra.transports.auth": "net.auth",
    "hydra.carriers.spec": "hydra.transports.link_url",
    "hydra.carriers.udp": "hydra.transports.udp.endpoint",
    "hydra.carriers.udp_session": "hydra.transports.udp.session",
    "hydra.carriers.udp_station": "hydra.transports.udp.demux",
    "hydra.carriers.udp_wire": "hydra.transports.udp.datagrams",
    "hydra.codec": "hydra.wire.codec",
    "hydra.control": "hydra.service.control",
    "hydra.invariants": "hydra.simulation.invariants",
    "hydra.keeping": "hydra.service.storage",
    "hydra.lease": "hydra.node.leader.lease",
    "hydra.lines": "hydra.wire.lines",
    "hydra.messages": "hydra.wire.messages",
    "hydra.metrics": "hydra.service.metrics",
    "hydra.promises": "hydra.node.durable_state",
    "hydra.roles": "hydra.node.roles",
    "hydra.scenarios": "hydra.simulation.scenarios",
    "hydra.state": "hydra.node.status",
    "hydra.state_file": "hydra.service.state_file",
    "journal.contents": "journal.coverage",
    "journal.group": "journal.commit_group",
    "journal.layout": "journal.format.layout",
    "journal.manifest": "journal.arrow.manifest",
    "journal.marking": "journal.repeat_marking",
    "journal.parquet": "journal.arrow.parquet",
    "journal.reorder": "journal.compaction",
    "journal.scan": "journal.format.scan",
    "journal.schema": "journal.arrow.schema",
    "journal.serving": "journal.remote.server",
    "journal.tabular": "journal.arrow.tabular",
    "journal.wire": "journal.remote.wire",
    "logs": "process.logs",
    "net.batch": "datagrams",
    "net.bursts": "net.gso",
    "net.dialling": "net.addresses",
    "net.inherited": "net.socket_activation",
    "net.link": "net.connection",
    "net.links": "net.stream_driver",
    "net.names": "net.addresses",
    "net.shell": "net.datagram_protocol",
    "notify": "process.sd_notify",
    "parcels.codec": "parcels.wire.codec",
    "parcels.http_client": "parcels.client.http_client",
    "parcels.invariants": "parcels.simulation.invariants",
    "parcels.journal_history": "parcels.service.journal_history",
    "parcels.keeping": "parcels.service.storage",
    "parcels.messages": "parcels.wire.messages",
    "parcels.modes": "parcels.node.modes",
    "parcels.order": "consensus.member",
    "parcels.ordered": "parcels.service.events_api",
    "parcels.promise_file": "parcels.service.state_file",
    "parcels.promises": "parcels.node.persistent_state",
    "parcels.publisher": "parcels.client.tcp_publisher",
    "parcels.scenarios": "parcels.simulation.scenarios",
    "parcels.sessions": "parcels.node.ordering.publisher_sessions",
    "parcels.state": "parcels.node.status",
    "parcels.web.following": "parcels.client.sse_client",
    "progress": "process.progress",
    "query.expression": "query.records.expression",
    "query.scraping": "query.monitoring.scraping",
    "query.sources": "query.records.journals",
    "query.watching": "query.monitoring.scraper",
    "reload": "process.sighup",
    "sim.crash": "sim.crash_mode",
    "sim.disk_faults": "sim.faults.disk_faults",
    "sim.loading": "sim.runs.scenario_ref",
    "sim.mishaps": "sim.fault_generators",
    "sim.open_file": "sim.disk.open_file",
    "sim.page": "sim.runs.html_report",
    "sim.page_cache": "sim.disk.page_cache",
    "sim.runner": "sim.runs.runner",
    "sim.stream_faults": "sim.faults.stream_faults",
    "sim.streams": "sim.tcp.streams",
    "spark.command": "spark.cli",
    "spark.experiments.grid": "experiments.sweep.grid",
    "spark.experiments.network": "experiments.sweep.network",
    "spark.origins": "spark.source.journal_locations",
    "web.answers": "web.response",
    "web.asking": "web.request",
    "web.clients": "web.client_limits",
    "web.guard": "web.access",
}
"""New path of each module that moved, both relative to the package."""

NAMES = {
    "freenet.signing": {"key_named": "named_key"},
    "freenet.stream": {"Phase": "StreamPhase"},
    "hydra.roles": {"Turns": "RoleInputs"},
    "hydra.state": {"NodeState": "NodeStatus"},
    "net.batch": {"Run": "DatagramRun"},
    "parcels.keeping": {"Keeping": "Storage"},
}
"""New names of what such a module held, by its old path."""


INTERNAL = (__file__, __file__.replace("_moved.py", "_exports.py"), importlib.__file__)
"""Files whose frames are not the caller's."""


class _MovedModule(ModuleType):
    """Stands where a module was and looks its names up where it is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        old = self.__name__.removeprefix(f"{PACKAGE}.")
        return getattr(import_module(f"{PACKAGE}.{MODULES[old]}"), NAMES.get(old, {}).get(name, name))


class _MovedLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _MovedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        new = MODULES[module.__name__.removeprefix(f"{PACKAGE}.")]
        warn(f"{module.__name__} has moved to {PACKAGE}.{new}; import it from there")


class _MovedFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith(f"{PACKAGE}.") and fullname.removeprefix(f"{PACKAGE}.") in MODULES:
            children = any(old.startswith(fullname.removeprefix(f"{PACKAGE}.") + ".") for old in MODULES)
            return ModuleSpec(fullname, _MovedLoader(), is_package=children)
        return None


def install() -> None:
    """Make the old paths importable."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        # First, because a directory that was left where a package had been would count as a namespace package.
        sys.meta_path.insert(0, _MovedFinder())


def warn(message: str) -> None:
    """Issue a DeprecationWarning that points at the first caller outside of this package and of the import system."""
    warnings.warn(message, DeprecationWarning, stacklevel=_level())


def _level() -> int:
    frame: FrameType | None = sys._getframe(2)
    level = 2
    while frame is not None:
        name = frame.f_code.co_filename
        if "importlib._bootstrap" not in name:  # The warnings module does not count these either.
            if name not in INTERNAL:
                break
            level += 1
        frame = frame.f_back
    return level
