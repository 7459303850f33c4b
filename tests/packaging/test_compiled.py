"""Compiled build: which modules it has, and how they behave to programs that use them."""

from __future__ import annotations

import ast
import copy
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from random import Random
from typing import Any

import pytest
from suite.native import COMPILED
from zope.interface.verify import verifyObject

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RoundRobinForward
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire import codec
from fyrehose_twisted.fyrehose.wire.packets import KeepaliveAck
from fyrehose_twisted.interfaces import IDatagramNode, Outputs

ROOT = Path(__file__).resolve().parents[2]
PURE = [
    "consensus", "datagrams", "driver", "length_frames", "lru_set", "ranges", "record", "repeats",
    "report_limiter", "token_bucket", "fyrehose.node", "fyrehose.wire", "hydra.node", "hydra.wire", "freenet.node",
    "freenet.wire", "parcels.node", "parcels.wire", "sim",
]  # fmt: skip


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that lists the compiled modules."""
    monkeypatch.syspath_prepend(ROOT / "compiling")
    return import_module("compiled_modules")


def all_listed(listed: Any) -> list[str]:
    return [
        listed.module_name(listed.SOURCE / file) for group in listed.GROUPS for file in listed.compiled_files(group)
    ]


def test_every_listed_module_is_compiled_once_and_the_rest_has_a_reason(listed: Any) -> None:
    modules = all_listed(listed)
    assert len(modules) == len(set(modules)) > 150
    for name, reason in listed.INTERPRETED.items():
        assert reason
        assert (listed.SOURCE / listed.PACKAGE / name.replace(".", "/")).with_suffix(".py").exists() or (
            listed.SOURCE / listed.PACKAGE / name.replace(".", "/")
        ).is_dir(), name


def test_every_pure_package_is_compiled(listed: Any) -> None:
    named = {name for names in listed.GROUPS.values() for name in names}
    assert set(PURE) <= named


def test_no_extension_module_hides_a_source() -> None:
    """A build in place would leave extension modules beside the sources, and Python prefers them."""
    left = [path for suffix in EXTENSION_SUFFIXES for path in (ROOT / "src").rglob(f"*{suffix}")]
    assert not left, f"remove {left}"


@pytest.mark.skipif(not COMPILED, reason="the nodes are not compiled")
def test_every_listed_module_loads_from_an_extension_and_no_other(listed: Any) -> None:
    package = Path(import_module("fyrehose_twisted").__file__ or "").parent
    [suffix] = {"".join(path.suffixes) for path in package.rglob("*.so")}
    built = {".".join(path.relative_to(package).parts).removesuffix(suffix) for path in package.rglob("*.so")}
    assert built == set(all_listed(listed))
    program = "import sys, importlib\nfor name in sys.argv[1:]: print(importlib.import_module(name).__file__)"
    names = [f"fyrehose_twisted.{name}" for name in all_listed(listed)]
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    assert all(line.endswith(".so") for line in done.stdout.splitlines())


def test_a_traceback_names_the_line_of_the_source() -> None:
    source = Path("fyrehose_twisted/fyrehose/wire/codec.py")
    statement = 'raise MalformedPacket("empty",'
    lines = (ROOT / "src" / source).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if statement in line)
    program = "from fyrehose_twisted.fyrehose.wire.codec import decode; decode(b'')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f'{source}", line {number}, in decode' in done.stderr


class CountingBackbone(Backbone):
    """An application's backbone, which counts ticks and has an attribute of its own."""

    def __init__(self) -> None:
        super().__init__(BackboneConfig(), RoundRobinForward())
        self.ticks = 0

    def tick(self, now: float) -> None:
        self.ticks += 1
        super().tick(now)


def test_an_application_subclasses_a_node() -> None:
    node = CountingBackbone()
    verifyObject(IDatagramNode, node)
    node.tick(1.0)
    assert node.ticks == 1
    assert isinstance(node.drain(), Outputs)


def test_an_override_is_called_by_the_node_itself() -> None:
    class Hearing(Client):
        heard: list[Any]

        def receive(self, packet: Any, peer: Any, now: float) -> None:
            self.heard.append(packet)

    node = Hearing(("192.0.2.1", 2323), ClientConfig(), Random(1), 0.0)
    node.heard = []
    node.receive_batch(Batch.pack([(codec.encode(KeepaliveAck(bytes(16))), ("192.0.2.1", 2323))]), 1.0)
    assert node.heard == [KeepaliveAck(bytes(16))]


def test_settings_are_copied() -> None:
    config = ClientConfig(start=7)
    assert copy.copy(config) == copy.deepcopy(config) == config
    assert replace(config, start=8) == ClientConfig(start=8)


COMPILABLE_BASES = {
    *("ABC", "Enum", "Exception", "Flag", "Generic", "IntEnum", "IntFlag", "NamedTuple", "Protocol", "StrEnum"),
    *("Mapping", "Sequence", "ValueError"),
}
"""Bases that mypyc knows, and abstract ones without attributes."""


def test_classes_have_only_bases_that_are_compiled(listed: Any) -> None:
    """Those of other classes have another layout in memory, so that the interpreter crashes."""
    modules = {f"fyrehose_twisted.{name}": name for name in all_listed(listed)}
    wrong = []
    for group in listed.GROUPS:
        for file in listed.compiled_files(group):
            tree = ast.parse((listed.SOURCE / file).read_text())
            known = COMPILABLE_BASES | {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
            for node in tree.body:
                if isinstance(node, ast.ImportFrom) and node.module in modules:
                    known |= {alias.asname or alias.name for alias in node.names}
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not any(
                    "native_class" in ast.dump(m) for m in node.decorator_list
                ):
                    bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
                    wrong += [f"{file}: {node.name}({base})" for base in bases - known]
    assert not wrong, "compile the base, or mark the class with native_class=False"


def test_no_compiled_class_has_an_unknown_decorator(listed: Any) -> None:
    """Such a class would be compiled to one of ordinary attributes."""
    known = {"dataclass", "final", "mypyc_attr", "runtime_checkable"}
    wrong = [
        f"{file}: {node.name}"
        for group in listed.GROUPS
        for file in listed.compiled_files(group)
        for node in ast.walk(ast.parse((listed.SOURCE / file).read_text()))
        if isinstance(node, ast.ClassDef)
        for mark in node.decorator_list
        if ast.unparse(mark).partition("(")[0] not in known
    ]
    assert not wrong
