"""README: its picture shows packets of real nodes, its figures were measured, and its examples run."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from xml.etree import ElementTree

import pytest
from documented.pages import PAGES, ROOT
from documented.terminal import Terminal

SVG = "{http://www.w3.org/2000/svg}"
README = PAGES[0].path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def picture() -> ModuleType:
    """Import ``docs/repair.py``, which is in no package."""
    spec = spec_from_file_location("repair", ROOT / "docs" / "repair.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_picture_shows_the_five_steps_of_a_repair(picture: ModuleType) -> None:
    rounds = picture.rounds_of(picture.follow())
    assert [(each[0].source, each[0].kind) for each in rounds] == [
        ("publisher", "PUSH"),
        ("backbone", "DELIVER"),
        ("subscriber-b", "REQUEST"),
        ("backbone", "FORWARD"),
        ("journal", "DELIVER"),
    ]
    assert [step.target for each in rounds for step in each if step.lost] == ["subscriber-b"]
    assert rounds[-1][0].target == "subscriber-b"


def test_readme_picture_has_each_packet_exactly_once(picture: ModuleType) -> None:
    steps = picture.follow()
    drawn = [line.attrib["data-step"] for line in ElementTree.fromstring(picture.draw(steps)).iter(f"{SVG}line")]
    told = [f"{step.source} {step.kind} {step.target}{' lost' * step.lost}" for step in steps]
    assert sorted(drawn) == sorted(told)
    fewer = ElementTree.fromstring(picture.draw(steps[:-1]))
    assert len(list(fewer.iter(f"{SVG}line"))) == len(steps) - 1


def test_readme_picture_on_disk_is_up_to_date(picture: ModuleType) -> None:
    assert picture.REPAIR.read_text(encoding="utf-8") == picture.draw(), "run make docs to redraw it"


def test_every_text_is_inside_the_readme_picture(picture: ModuleType) -> None:
    root = ElementTree.fromstring(picture.draw())
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for text in root.iter(f"{SVG}text"):
        # A letter is about half as wide as high, a little more in bold.
        reach = 0.55 * float(text.attrib.get("font-size", root.attrib["font-size"])) * len(text.text or "")
        right = float(text.attrib["x"]) + reach / (2 if text.attrib.get("text-anchor") == "middle" else 1)
        assert right <= width, text.text
        assert float(text.attrib["y"]) < height, text.text


def test_readme_shows_the_picture_with_a_description() -> None:
    assert re.search(r"!\[[^\]]{40,}\]\(docs/repair\.svg\)", README)


def test_readme_takes_its_figures_from_the_benchmarks() -> None:
    advice = README.partition("## When to take it")[2].partition("**How mature")[0]
    quoted = r"<!--= [^>]* -->[\w, ]+<!--/-->"
    assert len(re.findall(quoted, advice)) >= 5
    assert re.findall(r"\d,\d{3}\b|\d+(?= µs)", re.sub(quoted, "", advice)) == []


def test_readme_has_few_links() -> None:
    guides = [f"docs/howto/{name}.md" for name in ("parcels", "hydra", "freenet")]
    pictures = ["docs/repair.svg", "docs/howto/dashboard.md", "docs/dashboard.webp"]
    first = [*pictures, "docs/howto/asyncio.md", "docs/tutorial.md", "docs/comparison.md"]
    assert PAGES[0].links == [*first, *guides, "docs/index.md"]


def test_readme_fits_on_two_screens() -> None:
    assert len(README.splitlines()) <= 100


RUN_THE_OTHERS = """\
from twisted.internet.task import react

from fyrehose_twisted.hydra.irc.bots import parse_line
from others import *


async def main(reactor):
    root = FreenetService(FreenetConfig(listen="tcp:6180:interface=127.0.0.1"))
    root.startService()
    await root.subscribe(named_key("weather"))
    assert await report("127.0.0.1:6180") >= 0
    print(await book())
    print(*Pong().line_received(parse_line(b":ann!a@b PRIVMSG #tea :!ping", 1, 1)))


react(main)
"""


def test_readme_examples_of_the_other_protocols_run(terminal: Terminal) -> None:
    [example] = [block.text for block in PAGES[0].blocks if block.file_name == "others.py"]
    for name, text in (("others.py", example), ("run.py", RUN_THE_OTHERS)):
        (terminal.directory / name).write_text(terminal.spell_ports(text), encoding="utf-8")
    terminal.run("python run.py", "1\nPRIVMSG #tea :pong, ann\n")
