"""The security page names existing tests, and has a row for every service."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from twisted.application.service import ServiceMaker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_tests_named_on_the_security_page_exist() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert len(named) >= 8
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_service_has_a_row_on_the_security_page() -> None:
    rows = " ".join(re.findall(r"^\| (`.*?) \|", PAGE.partition("## Each service")[2], re.MULTILINE))
    rows = rows.replace("`fyrehose-client`, `-journal`", "`fyrehose-client`, `fyrehose-journal`")
    plugins = import_module("twisted.plugins.fyrehose_twisted_plugins")
    for maker in vars(plugins).values():
        if isinstance(maker, ServiceMaker):
            assert f"`{maker.tapname}`" in rows
