"""The page for operators lists all reloadable limits and all units."""

from __future__ import annotations

import re
from pathlib import Path

from fyrehose_twisted.fyrehose.frontend.config import RELOADABLE as OF_FRONTEND
from fyrehose_twisted.fyrehose.service.backbone_tap import Options
from fyrehose_twisted.query.config import RELOADED as OF_QUERY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "operate.md").read_text()


def row(name: str) -> set[str]:
    (found,) = re.findall(rf"^\| {name} \| (`.*) \|$", PAGE, re.MULTILINE)
    return set(re.findall(r"`([a-z-]+)`", found))


def test_table_of_service_limits_is_complete() -> None:
    assert row("backbone") == set(Options.limits)
    assert row("query") == {name.replace("_", "-") for name in OF_QUERY}
    assert row("frontend") == {name.replace("_", "-") for name in OF_FRONTEND}


def test_table_of_systemd_units_is_complete() -> None:
    units = {path.name.removesuffix(".service") for path in (ROOT / "deploy" / "systemd").glob("*.service")}
    assert set(re.findall(r"^\| `([a-z@-]+)\.service`", PAGE, re.MULTILINE)) == units


def test_example_override_starts_with_the_command_of_the_unit() -> None:
    unit = (ROOT / "deploy" / "systemd" / "fyrehose-backbone.service").read_text()
    (line,) = re.findall(r"^ExecStart=(?:.*\\\n)*.*$", unit, re.MULTILINE)
    assert f"{line} --secret-file=%d/secret\n" in PAGE
