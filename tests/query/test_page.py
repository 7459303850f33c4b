"""Static files of the dashboard, checked without a browser."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from fyrehose_twisted.query.resources import KINDS, SCRIPTS

PAGE = files("fyrehose_twisted.query").joinpath("page")
HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
TEXTS = {name: PAGE.joinpath(name).read_text() for name in KINDS}
SCRIPT = "".join(TEXTS[name] for name in SCRIPTS)


def test_dashboard_files_name_no_other_host() -> None:
    for name, text in TEXTS.items():
        addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
        # A namespace, and the example of an address.
        assert addresses <= {"http://www.w3.org/2000/svg", "http://127.0.0.1:9100/metrics"}, name


def test_dashboard_loads_its_scripts_in_order() -> None:
    assert re.findall(r'<script src="/([a-z.]+)" defer></script>', TEXTS["index.html"]) == list(SCRIPTS)


def test_dashboard_has_no_inline_scripts_or_styles() -> None:
    page = TEXTS["index.html"]
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", page) == []


def test_dashboard_scripts_never_insert_markup() -> None:
    found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTML", SCRIPT)
    assert found == []


def test_every_element_used_by_the_dashboard_scripts_exists() -> None:
    ids = set(re.findall(r'id="([a-z-]+)"', TEXTS["index.html"]))
    assert set(re.findall(r'byId\("([a-z-]+)"\)', SCRIPT)) <= ids


def test_dashboard_has_accessible_headings_labels_and_landmarks() -> None:
    page = TEXTS["index.html"]
    assert page.count("<h1>") == 1
    assert not re.search(r"<h[3-6]", page)
    assert {"<header>", "<main ", "<footer "} <= {
        found for found in ("<header>", "<main ", "<footer ") if found in page
    }
    for field in re.findall(r'<input id="([a-z]+)"', page):
        assert f'<label for="{field}">' in page
    assert '<html lang="en">' in page


def test_every_metric_on_the_dashboard_is_documented() -> None:
    pages = "".join(page.read_text("utf-8") for page in HOWTO.glob("*.md"))
    kinds = "|".join(re.findall(r'{ id: "([a-z]+)", title:', SCRIPT))
    shown = re.findall(rf'"((?:{kinds})_[a-z_]+)"', SCRIPT)
    assert len(set(shown)) > 40
    assert [name for name in shown if f"`fyrehose_{name}`" not in pages] == []


def colours(dark: bool) -> dict[str, str]:
    light, _, rest = TEXTS["style.css"].partition("@media (prefers-color-scheme: dark)")
    part = rest.partition("}\n}")[0] if dark else light
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", part))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("ground", ["page", "card"])
@pytest.mark.parametrize("text", ["text", "quiet", "accent", "good", "warn", "bad"])
def test_dashboard_colours_have_sufficient_contrast(dark: bool, ground: str, text: str) -> None:
    found = colours(dark)
    one, other = sorted((luminance(found[ground]), luminance(found[text])))
    assert (other + 0.05) / (one + 0.05) >= 4.5, (found[ground], found[text])


def test_light_and_dark_scheme_define_the_same_colours() -> None:
    assert colours(False).keys() == colours(True).keys()
