"""Markdown pages: blocks, links, and the requirements that a page tells its reader to install."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]

PROJECT = "fyrehose_twisted"


class Command(NamedTuple):
    """A command of a console block, the output that the page shows below it, and its line in the page."""

    text: str
    shown: str
    line: int


@dataclass(frozen=True)
class Block:
    """A fenced block: ``language`` and ``marks`` are the words behind the fence, ``line`` is that of the fence."""

    language: str
    marks: tuple[str, ...]
    text: str
    line: int

    @property
    def file_name(self) -> str | None:
        """The name in a first line ``# name.py``, or ``-- name.sql``: readers save the block under it."""
        named = re.match(r"(?:# ([\w.-]+\.py)|-- ([\w./-]+\.sql))\n", self.text)
        return named and (named[1] or named[2])

    @property
    def runs(self) -> bool:
        """True if the tests run this block."""
        return self.language == "console" or "runnable" in self.marks

    @property
    def commands(self) -> list[Command]:
        """Commands of a console block."""
        commands: list[Command] = []
        for number, line in enumerate(self.text.splitlines(), self.line + 1):
            if line.startswith("$ "):
                commands.append(Command(line[2:], "", number))
            elif commands[-1].text.endswith("\\") and line.startswith("> "):
                commands[-1] = commands[-1]._replace(text=f"{commands[-1].text}\n{line[2:]}")
            else:
                commands[-1] = commands[-1]._replace(shown=f"{commands[-1].shown}{line}\n")
        return commands


class Install(NamedTuple):
    """Requirements that the reader is told to install, and the line that says so."""

    requirements: frozenset[str]
    line: int


def installs_of(line: str) -> frozenset[str]:
    """Return the requirements of each ``pip install`` in a line, the project as ``fyrehose_twisted[EXTRAS]``."""
    found = set()
    for words in re.findall(r"\bpip install ([^`#|&;]+)", line):
        for word in shlex.split(words):
            if re.match(r"\.(?=\[|$)", word):
                found.add(PROJECT + word[1:])
            elif re.match(r"[A-Za-z]", word):
                found.add(word)
    return frozenset(found)


@dataclass
class Page:
    """A Markdown file.

    :ivar part: the heading whose blocks run; ``None`` for all of the page.
    """

    path: Path
    part: str | None = None
    blocks: list[Block] = field(default_factory=list)
    installs: list[Install] = field(default_factory=list)
    prose: str = ""

    def __post_init__(self) -> None:
        fence, opened, lines, heading = "", 0, [], ""
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            if not fence:
                opening = re.match(r"(`{3,}|:{3,})\s*(.*)", line)
                if opening:
                    fence, info, opened, lines = opening[1], opening[2].split(), number, []
                    continue
                heading = line.lstrip("# ") if re.match("#+ ", line) else heading
                self.prose += line + "\n"
            elif line.rstrip() == fence:
                block = Block(info[0] if info else "", tuple(info[1:]), "\n".join([*lines, ""]), opened)
                if self.part in (None, heading):
                    self.blocks.append(block)
                fence = ""
            else:
                lines.append(line)
            # Programs print such lines, too.
            if not fence or info[:1] == ["sh"]:
                requirements = installs_of(line)
                if requirements:
                    self.installs.append(Install(requirements, number))
        assert not fence, f"{self.path}:{opened}: the fence is not closed"

    @property
    def name(self) -> str:
        """The path in the repository, with the heading of the part behind ``#``."""
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else Path(self.path.name)
        return path.as_posix() + (f"#{self.part}" if self.part else "")

    def only(self, heading: str) -> Page:
        """Return a page with only the blocks right below ``heading``."""
        return replace(self, part=heading, blocks=[], installs=[], prose="")

    @property
    def steps(self) -> list[Install | Block]:
        """Blocks that the reader installs, saves or runs, in order."""
        return sorted([*self.installs, *self.blocks], key=lambda step: step.line)

    @property
    def links(self) -> list[str]:
        """Targets of the links in the prose."""
        return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "`", self.prose))

    @property
    def anchors(self) -> set[str]:
        """Fragments that a link may name, as GitHub and MyST derive them from headings."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    @property
    def runs(self) -> bool:
        """True if there is anything to run."""
        return any(block.runs for block in self.blocks)


PAGES = [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]
"""All documentation pages."""
