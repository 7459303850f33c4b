"""The page about the public API lists the names that exist."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "public-api.md").read_text(encoding="utf-8")
PACKAGES = "fyrehose", "parcels", "hydra", "freenet"


def names_in(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


@pytest.mark.parametrize("package", PACKAGES)
def test_all_public_names_of_a_protocol_package_are_listed(package: str) -> None:
    [cell] = re.findall(rf"^\| `fyrehose_twisted\.{package}` \| (.+) \|$", PAGE, re.MULTILINE)
    source = (ROOT / "src" / "fyrehose_twisted" / package / "__init__.py").read_text(encoding="utf-8")
    exported = re.findall(r"import (\w+) as \1$", source, re.MULTILINE)
    assert sorted(names_in(cell)) == sorted(exported)


def test_listed_names_of_shared_modules_exist() -> None:
    listed = re.findall(r"`(fyrehose_twisted\.[\w.]+)`: ((?:`\w+`(?:, )?)+)", PAGE)
    assert len(listed) == 4
    for module, cell in listed:
        assert [name for name in names_in(cell) if not hasattr(import_module(module), name)] == []


def test_deprecation_warning_of_a_moved_module_is_as_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    [(shown, old)] = re.findall(r"^DeprecationWarning: ((\S+) has moved to .+)$", PAGE, re.MULTILINE)
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(shown)}$"):
        import_module(old)


REFERENCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "reference").glob("*.md")))


def is_described(name: str, value: object) -> bool:
    """Return whether the reference is made from the module that defines a name, or from the name itself."""
    module = getattr(value, "__module__", "")
    return (
        re.search(rf"automodule:: {re.escape(module)}$", REFERENCE, re.MULTILINE) is not None
        or re.search(rf"auto\w+:: {re.escape(module)}\.{name}$", REFERENCE, re.MULTILINE) is not None
    )


@pytest.mark.parametrize("package", [*PACKAGES, "errors", "interfaces", "effects", "record"])
def test_reference_describes_every_public_name(package: str) -> None:
    module = import_module(f"fyrehose_twisted.{package}")
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    if package in PACKAGES:
        names = re.findall(r"import (\w+) as \1$", source, re.MULTILINE)
    else:
        names = re.findall(r"^class ([A-Z]\w+)", source, re.MULTILINE)
    assert names
    # A constant has no module; the page lists it.
    values = {name: getattr(module, name) for name in names if not name.isupper()}
    assert [name for name, value in values.items() if not is_described(name, value)] == []


def test_packages_export_lazily_what_type_checkers_see_and_nothing_else() -> None:
    for package in PACKAGES:
        module = import_module(f"fyrehose_twisted.{package}")
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        typed = set(re.findall(r"import (\w+) as \1$", source, re.MULTILINE))
        lazily = set(re.findall(r'^            "(\w+)": "', source, re.MULTILINE))
        assert typed == lazily, package
