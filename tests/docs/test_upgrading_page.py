"""The pages on versions and upgrading: their tables are those of the code, and old forms work as they say."""

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from documented.pages import ROOT

from fyrehose_twisted import _moved
from fyrehose_twisted.cli import main as command_line

PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
RULES = (ROOT / "docs" / "versioning.md").read_text(encoding="utf-8")
REMOVALS = sorted((ROOT / "changes").rglob("*.removal.md"))


def load_renames() -> ModuleType:
    """Import ``docs/renames.py``, which is in no package."""
    spec = spec_from_file_location("renames", ROOT / "docs" / "renames.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["renames"] = module  # Named tuples look their module up.
    spec.loader.exec_module(module)
    return module


renames = load_renames()


def rows(heading: str) -> list[list[str]]:
    """Return the code in the cells of the table below a heading, one list a row."""
    _, found, section = PAGE.partition(f"### {heading}\n")
    assert found
    lines = section.partition("\n#")[0].splitlines()
    return [re.findall(r"`([^`]+)`", line) for line in lines if line.startswith("| `")]


def test_tables_of_the_upgrading_page_are_up_to_date() -> None:
    assert renames.filled(PAGE) == PAGE, "run python docs/renames.py"


def test_tables_have_something_in_them() -> None:
    found = {name: text.count("\n") - 2 for name, text in renames.tables().items()}
    assert found["modules"] == len(_moved.MODULES)
    assert min(found.values()) >= 2


def test_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the table names"):
        renames.filled(PAGE.replace("renamed: names", "renamed: nothing"))


@pytest.mark.parametrize("entry", renames.names(), ids=str)
def test_old_name_works_and_its_warning_names_the_new_one(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        new = import_module(f"fyrehose_twisted.{entry.where}")
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    former = [old for old, names in _moved.NAMES.items() if entry.old in names and _moved.MODULES[old] == entry.where]
    path = f"fyrehose_twisted.{former[0] if former else entry.where}"
    if former:
        monkeypatch.delitem(sys.modules, path, raising=False)
    with pytest.warns(DeprecationWarning, match=entry.where if former else f"is called {entry.new} now"):
        assert getattr(import_module(path), entry.old) is getattr(new, entry.new)


@pytest.mark.parametrize("entry", renames.command_options(), ids=str)
def test_former_option_of_a_command_is_accepted_without_being_listed(entry: Any) -> None:
    parser: Any = command_line._parser()
    for word in entry.where.split()[1:]:
        [commands] = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
        parser = commands[word]
    action = parser._option_string_actions
    assert action[entry.old].dest == action[entry.new].dest
    listed = parser.format_help()
    assert not re.search(rf"{re.escape(entry.old)}\b", listed)
    assert entry.new in listed


@pytest.mark.parametrize("entry", renames.service_options(), ids=str)
def test_former_option_of_a_service_is_accepted_without_being_listed(entry: Any) -> None:
    [plugin] = [one for one in vars(renames.plugins).values() if getattr(one, "tapname", "") == entry.where]
    options = import_module(plugin.module).Options()
    names = {name: options.synonyms.get(name, name) for name in options.synonyms}
    old, new = entry.old.lstrip("-"), entry.new.lstrip("-")
    assert names.get(old, options.aliases[old]) == new
    assert not re.search(rf"\s{re.escape(entry.old)}\b", str(options))


def imported(statement: str) -> object:
    """Return what a statement ``from MODULE import NAME`` imports."""
    _, module, _, name = statement.split()
    return getattr(import_module(module), name)


def test_imports_of_the_page_give_the_same_objects() -> None:
    for old, new in rows("Imports"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            assert imported(old) is imported(new)


def test_calls_of_the_page_configure_the_same_services(tmp_path: Path) -> None:
    from fyrehose_twisted import freenet, hydra, parcels

    def names(protocol: ModuleType) -> dict[str, Any]:
        # All three have a class NodeConfig.
        return {name: getattr(protocol, name) for name in dir(protocol) if name[0].isupper()}

    pairs = [pair for pair in rows("Configuration of services") if "(" in pair[0]]
    assert len(pairs) == 3
    for old, new in pairs:
        [protocol] = [one for one in (freenet, hydra, parcels) if old.partition("(")[0] in dir(one)]
        scope = {**names(protocol), "storage": parcels.Storage(tmp_path)}
        with pytest.warns(DeprecationWarning, match=r"takes one configuration now|is called bootstrap now"):
            before = eval(old, scope)  # noqa: S307
        assert before.config == eval(new, scope).config  # noqa: S307


@pytest.mark.parametrize("fragment", REMOVALS, ids=lambda path: path.name)
def test_every_removal_is_on_the_upgrading_page(fragment: Path) -> None:
    code = re.findall(r"`([^`]+)`", " ".join(fragment.read_text(encoding="utf-8").split()))
    words = {word for text in code for word in re.findall(r"-*[\w-]{4,}", text)} - {"fyrehose"}
    assert words, "a removal names what is removed"
    found = {word for word in words if word in PAGE}
    assert len(found) >= len(words) / 3, f"the page has no {sorted(words - found)}"


def test_versions_page_speaks_of_every_public_kind_of_thing() -> None:
    listed = (ROOT / "docs" / "reference" / "public-api.md").read_text(encoding="utf-8")
    table = listed.partition("## Public and stable")[2].partition("\n## ")[0]
    kinds = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][2:]
    promised = RULES.partition("## What the number promises")[2].partition("\n## ")[0].lower()
    said = {
        "names of the four protocol packages": "import paths",
        "effects of nodes": "import paths",
        "records": "import paths",
        "the simulator": "import paths",
        "journals": "interfaces",
        "services and commands": "options, commands",
        "file formats": "journal format",
        "HTTP": "http and control ports",
    }
    assert [kind for kind in kinds if said.get(kind, kind).lower() not in promised] == []
