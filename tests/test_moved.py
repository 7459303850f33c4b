"""Deprecated import paths and names, which keep working with a warning at the caller."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted import _moved
from fyrehose_twisted.errors import ClusterIdMismatch
from fyrehose_twisted.parcels.node.status import NodeStatus

MISMATCH = ClusterIdMismatch("00000000000000aa", "00000000000000bb")
STATUS = NodeStatus("a", 1, "", "default", "00000000000000bb", "Wrk", "", None, 0, 0, 1, 1, (), (), {})


def imported(path: str) -> object:
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fyrehose_twisted"):
            raise
        pytest.skip(f"{error.name} is not installed")


@pytest.mark.parametrize("old", _moved.MODULES)
def test_a_moved_module_can_be_imported_from_its_old_path_with_a_warning(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"fyrehose_twisted.{old}", raising=False)
    new = imported(f"fyrehose_twisted.{_moved.MODULES[old]}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = import_module(f"fyrehose_twisted.{old}")
    [warning] = [one for one in caught if f"fyrehose_twisted.{old} has moved" in str(one.message)]
    assert warning.category is DeprecationWarning
    assert warning.filename == __file__
    for name in [name for name in vars(new) if not name.startswith("__")]:
        assert getattr(module, name) is getattr(new, name)


@pytest.mark.parametrize(("old", "name"), [(old, name) for old, names in _moved.NAMES.items() for name in names])
def test_a_renamed_name_is_found_under_its_old_path_and_name(old: str, name: str) -> None:
    new = imported(f"fyrehose_twisted.{_moved.MODULES[old]}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = import_module(f"fyrehose_twisted.{old}")
    assert getattr(module, name) is getattr(new, _moved.NAMES[old][name])


def test_a_renamed_name_of_a_module_that_stayed_warns() -> None:
    interfaces = import_module("fyrehose_twisted.interfaces")
    with pytest.warns(DeprecationWarning, match="Drained is called Outputs now") as caught:
        assert interfaces.Drained is interfaces.Outputs
    assert caught[0].filename == __file__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = interfaces.Nothing


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("interfaces", "Drained", "Outputs"),
        ("errors", "FoundingMismatch", "ClusterIdMismatch"),
        ("spark.errors", "one_line", "error_line"),
    ],
)
def test_a_documented_name_that_changed_in_place_is_found_by_its_old_name(module: str, old: str, new: str) -> None:
    found = import_module(f"fyrehose_twisted.{module}")
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new} now"):
        assert getattr(found, old) is getattr(found, new)


@pytest.mark.parametrize("holder", [MISMATCH, STATUS], ids=lambda holder: type(holder).__name__)
def test_a_renamed_attribute_is_found_by_its_old_name(holder: Any) -> None:
    with pytest.warns(DeprecationWarning, match="founding is called cluster_id now") as caught:
        assert holder.founding == holder.cluster_id == "00000000000000bb"
    assert caught[0].filename == __file__


def test_an_unknown_module_is_still_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("fyrehose_twisted.fyrehose.nothing")


def test_a_moved_module_has_no_name_that_the_new_one_lacks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = import_module("fyrehose_twisted.fyrehose.codec")
    with pytest.raises(AttributeError):
        _ = module.nothing


PACKAGES = "fyrehose", "hydra", "freenet", "parcels"


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_those_that_type_checkers_see(package: str) -> None:
    module = import_module(f"fyrehose_twisted.{package}")
    path = module.__file__
    assert path is not None
    with open(path, encoding="utf-8") as file:
        typed = {line.split()[-1].rstrip(",") for line in file.read().replace(",", "\n").split("\n") if " as " in line}
    assert typed <= set(dir(module))
    assert typed
    for name in typed:
        value = getattr(module, name)
        assert getattr(module, name) is value
    with pytest.raises(AttributeError, match=f"module 'fyrehose_twisted.{package}' has no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_and_its_codec_load_no_reactor(package: str) -> None:
    program = (
        f"import fyrehose_twisted.{package}, fyrehose_twisted.{package}.wire.codec, sys;"
        "print([name for name in sys.modules if name.partition('.')[0] in ('twisted', 'asyncio')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_deprecated_parameter_of_a_node_works_and_warns() -> None:
    from fyrehose_twisted.hydra import NodeConfig

    with pytest.warns(DeprecationWarning, match=r"found=\.\.\.\) is called bootstrap now") as caught:
        assert NodeConfig(found=True) == NodeConfig(bootstrap=True)
    assert caught[0].filename == __file__


def test_hydra_service_accepts_its_former_parameters(tmp_path: Path) -> None:
    from fyrehose_twisted.hydra import Bot, HydraConfig, HydraService, NodeConfig

    bot = Bot()
    with pytest.warns(DeprecationWarning, match="takes one configuration now") as caught:
        node = HydraService(
            NodeConfig(tag="b", bootstrap=True), ["tcp:a:1"], state=tmp_path / "s", guardian=False, bots=[bot]
        )  # type: ignore[call-arg, arg-type, misc]
    [warning] = caught
    assert str(warning.message) == (
        "HydraService takes one configuration now:"
        " HydraService(HydraConfig(tag=..., bootstrap=..., state=..., links=..., guardian=...))"
    )
    assert warning.filename == __file__
    expected = HydraConfig(tag="b", bootstrap=True, links=["tcp:a:1"], state=tmp_path / "s", guardian=False)
    assert replace(node.config, targets=()) == expected
    assert list(node._bots._bots) == [bot]


def test_freenet_service_accepts_its_former_parameters() -> None:
    from fyrehose_twisted.freenet import FreenetConfig, FreenetService

    def fail(error: Exception) -> None:
        raise error

    page = (Path(__file__).parents[1] / "docs/reference/public-api.md").read_text(encoding="utf-8")
    with pytest.warns(DeprecationWarning, match="takes one configuration now") as caught:
        node = FreenetService(["127.0.0.1:1"], ["tcp:0"], failed=fail)  # type: ignore[arg-type, misc]
    [warning] = caught
    assert f"\nDeprecationWarning: {warning.message}\n" in page
    assert warning.filename == __file__
    assert node.config == FreenetConfig("127.0.0.1:1", listen="tcp:0")
    assert node._on_failure is fail


def test_parcels_node_accepts_its_former_parameters(tmp_path: Path) -> None:
    from fyrehose_twisted.parcels import NodeConfig, ParcelsConfig, ParcelsNode, Storage

    storage, secret = Storage(tmp_path), b"a secret that is long enough"
    with pytest.warns(DeprecationWarning, match="takes one configuration now") as caught:
        node = ParcelsNode(NodeConfig("a", secret=secret), "tcp:0", keeping=storage)  # type: ignore[call-arg, arg-type, misc]
    [warning] = caught
    assert str(warning.message) == (
        "ParcelsNode takes one configuration now:"
        " ParcelsNode(ParcelsConfig(name=..., secret=..., listen=..., storage=...))"
    )
    assert warning.filename == __file__
    assert node.config == ParcelsConfig("a", secret=secret, listen="tcp:0", storage=storage)


def test_a_configuration_beside_former_parameters_is_refused() -> None:
    from fyrehose_twisted.freenet import FreenetConfig, FreenetService

    with pytest.raises(TypeError, match="unexpected keyword argument 'location'"):
        FreenetService(FreenetConfig(), location=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'place'"):
        FreenetService(place=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes 2 positional arguments at most"):
        FreenetService([], [], 0.5)  # type: ignore[arg-type, call-arg, misc]
