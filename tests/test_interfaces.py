from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
from zope.interface import Attribute, Interface, implementedBy
from zope.interface.interface import InterfaceClass, Method
from zope.interface.verify import verifyClass, verifyObject

import fyrehose_twisted
from fyrehose_twisted import interfaces
from fyrehose_twisted.aio.loop_reactor import LoopReactor, _Resolution

PACKAGE = Path(fyrehose_twisted.__file__).parent


def declared() -> Iterator[str]:
    """Return dotted names of classes that declare interfaces, parsed, since some need extras to import.

    Classes that may be compiled call ``classImplements``, because mypyc compiles no class with an unknown decorator.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        inner = path.parent if path.name == "__init__.py" else path.with_suffix("")
        module = ".".join(("fyrehose_twisted", *inner.relative_to(PACKAGE).parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any("implementer" in ast.dump(mark) for mark in node.decorator_list):
                yield f"{module}.{node.name}"
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "classImplements":
                yield f"{module}.{ast.unparse(node.args[0])}"


NAMES = list(declared())


def found(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fyrehose_twisted"):
            raise
        pytest.skip(f"{error.name} is not installed")


def ours(cls: type) -> list[InterfaceClass]:
    """Return the interfaces declared by ``cls`` and its bases of this package, without Twisted's."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("fyrehose_twisted.")]
    return [interface for base in bases for interface in implementedBy(base).declared]


def sequence_file(directory: Path) -> Any:
    from fyrehose_twisted.fyrehose.service.state_file import SequenceFile

    return SequenceFile(directory / "state", "fyrehose://default")


def backbone(directory: Path) -> Any:
    from fyrehose_twisted.fyrehose.config import BackboneConfig
    from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
    from fyrehose_twisted.fyrehose.node.backbone.forwarding import RoundRobinForward

    return Backbone(BackboneConfig(), RoundRobinForward())


def client(directory: Path) -> Any:
    from fyrehose_twisted.fyrehose.config import ClientConfig
    from fyrehose_twisted.fyrehose.node.client.client import Client

    return Client(("127.0.0.1", 2323), ClientConfig(), Random(1), 0.0)


def random_forward(directory: Path) -> Any:
    from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward

    return RandomForward(Random(1))


def journal(directory: Path) -> Any:
    from fyrehose_twisted.journal.store import open_journal

    return open_journal(directory, "fyrehose://default")


def member_state_file(directory: Path) -> Any:
    from fyrehose_twisted.fyrehose.service.member.state_file import MemberStateFile

    return MemberStateFile(directory / "state.member", "fyrehose://s", "a")


def memory_journal(directory: Path) -> Any:
    from fyrehose_twisted.journal.memory import MemoryJournal

    return MemoryJournal("fyrehose://default")


def journal_reader(directory: Path) -> Any:
    from fyrehose_twisted.journal.reader import JournalReader

    written = journal(directory)
    written.close()
    return JournalReader(written.directory)


def remote_reader(directory: Path) -> Any:
    from fyrehose_twisted.journal.remote.client import RemoteReader, ServedStream

    class Remote:
        def streams(self) -> list[ServedStream]:
            return [ServedStream("fyrehose://default", 0, (), None, ())]

    remote: Any = Remote()
    return RemoteReader(remote, "fyrehose://default")


def event_window(directory: Path) -> Any:
    from fyrehose_twisted.parcels.node.ordering.history import EventWindow

    return EventWindow(1_000)


def payload_sealer(directory: Path) -> Any:
    from fyrehose_twisted.sealing.key_ring import KeyRing
    from fyrehose_twisted.sealing.keys import SealKey
    from fyrehose_twisted.sealing.sealer import PayloadSealer

    return PayloadSealer(KeyRing("fyrehose://default", [SealKey("aes-256-gcm", bytes(32))]), Random(1))


def journal_history(directory: Path) -> Any:
    from fyrehose_twisted.parcels.service.journal_history import JournalHistory

    return JournalHistory(memory_journal(directory), 1_000, lambda: 0.0)


def ordered_events(directory: Path) -> Any:
    from fyrehose_twisted.parcels.config import NodeConfig
    from fyrehose_twisted.parcels.service.events_api import OrderedEventsMixin

    return OrderedEventsMixin(NodeConfig("a"))


def body(directory: Path) -> Any:
    return found("fyrehose_twisted.parcels.client.http.Body")(b"")


def loop_reactor(path: Path) -> Any:
    loop = asyncio.new_event_loop()
    loop.close()  # Nothing runs on it.
    return LoopReactor(loop)


def resolution(path: Path) -> Any:
    lookup: Any = None
    return _Resolution("localhost", lookup)


MAKERS: dict[str, Callable[[Path], Any] | None] = {
    "fyrehose_twisted.aio.loop_reactor.LoopReactor": loop_reactor,
    "fyrehose_twisted.aio.loop_reactor._Resolution": resolution,
    "fyrehose_twisted.experiments.growth.link_policies.DensityLinks": None,
    "fyrehose_twisted.experiments.growth.link_policies.RandomLinks": None,
    "fyrehose_twisted.experiments.growth.link_policies.SmallWorldLinks": None,
    "fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone": backbone,
    "fyrehose_twisted.fyrehose.node.client.client.Client": client,
    "fyrehose_twisted.fyrehose.node.backbone.forwarding.RandomForward": random_forward,
    "fyrehose_twisted.fyrehose.node.backbone.forwarding.RoundRobinForward": None,
    "fyrehose_twisted.fyrehose.node.client.memory_store.MemoryStore": None,
    "fyrehose_twisted.fyrehose.node.backbone.sequencer.VolatileSequenceStore": None,
    "fyrehose_twisted.fyrehose.protocol.client.SubscriberProtocol": None,
    "fyrehose_twisted.fyrehose.protocol.member.VolatileMemberStore": None,
    "fyrehose_twisted.fyrehose.protocol.publisher.PublisherProtocol": None,
    "fyrehose_twisted.fyrehose.service.member.state_file.MemberStateFile": member_state_file,
    "fyrehose_twisted.fyrehose.service.state_file.SequenceFile": sequence_file,
    "fyrehose_twisted.journal.memory.MemoryJournal": memory_journal,
    "fyrehose_twisted.journal.reader.JournalReader": journal_reader,
    "fyrehose_twisted.journal.remote.client.RemoteReader": remote_reader,
    "fyrehose_twisted.journal.store.Journal": journal,
    "fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol": None,
    "fyrehose_twisted.net.tls.endpoints.MutualTlsClientParser": None,
    "fyrehose_twisted.net.tls.endpoints.MutualTlsServerParser": None,
    "fyrehose_twisted.parcels.node.ordering.history.EventWindow": event_window,
    "fyrehose_twisted.parcels.service.journal_history.JournalHistory": journal_history,
    "fyrehose_twisted.parcels.service.events_api.OrderedEventsMixin": ordered_events,
    "fyrehose_twisted.parcels.client.http.Body": body,
    "fyrehose_twisted.sealing.sealer.PayloadSealer": payload_sealer,
}
"""Factories of objects, for classes whose attributes exist only on instances."""


def attributes(interface: InterfaceClass) -> list[str]:
    return [name for name, what in interface.namesAndDescriptions(all=True) if not isinstance(what, Method)]


def test_classes_that_implement_interfaces_are_found() -> None:
    assert {"fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone", *MAKERS} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_has_the_methods_of_its_interfaces(name: str) -> None:
    cls = found(name)
    provided = ours(cls)
    assert provided
    for interface in provided:
        assert verifyClass(interface, cls)


@pytest.mark.parametrize("name", MAKERS)
def test_an_object_provides_the_interfaces_of_its_class(name: str, tmp_path: Path) -> None:
    make = MAKERS[name]
    made = found(name)() if make is None else make(tmp_path)
    try:
        for interface in ours(type(made)):
            assert verifyObject(interface, made)
    finally:
        if hasattr(made, "close"):
            made.close()


@pytest.mark.parametrize("name", NAMES)
def test_classes_whose_interfaces_have_attributes_are_instantiated(name: str) -> None:
    # verifyClass does not check attributes, so such a class needs an entry in MAKERS.
    promised = [attribute for interface in ours(found(name)) for attribute in attributes(interface)]
    assert name in MAKERS or not promised


def all_interfaces() -> list[InterfaceClass]:
    return [
        what
        for what in vars(interfaces).values()
        if isinstance(what, InterfaceClass) and what.__module__ == interfaces.__name__
    ]


@pytest.mark.parametrize("interface", all_interfaces(), ids=lambda interface: interface.__name__)
def test_an_interface_is_documented_and_small(interface: InterfaceClass) -> None:
    assert interface.__doc__
    own = list(interface.namesAndDescriptions())
    assert len(own) <= 6
    assert all(what.getDoc() for _, what in own)


@pytest.mark.parametrize("interface", all_interfaces(), ids=lambda interface: interface.__name__)
def test_every_interface_is_implemented(interface: InterfaceClass) -> None:
    assert any(interface in implementedBy(found(name)).flattened() for name in NAMES)


def test_a_missing_interface_attribute_is_detected() -> None:
    class IThing(Interface):
        size = Attribute("How big.")

    assert attributes(IThing) == ["size"]
