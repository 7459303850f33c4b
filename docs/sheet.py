"""SVG drawing that grows downwards, with text, boxes, arrows and bars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, MARGIN = 760, 16
HEIGHT, GAP = 26, 6
"""Height of a box and distance between boxes, in pixels."""


class Sheet:
    """SVG drawing that grows downwards."""

    def __init__(self, title: str, width: int = WIDTH) -> None:
        self.title, self.width, self.bottom = title, width, MARGIN
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, text: str, fill: str, data: str = "") -> None:
        """Draw a box with centred text; ``data`` is its ``data-name``, by which tests find it."""
        self._parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HEIGHT}" rx="5" fill="{fill}" stroke="#444"'
            f"{f' data-name={data!r}' if data else ''}/>".replace("'", '"')
        )
        self.text(x + width / 2, y + 17, text, anchor="middle")

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, colour: str = "#222"
    ) -> None:
        """Draw a line of text."""
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'
        )

    def line(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw an arrow."""
        self._parts.append(
            f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}" stroke="#444" stroke-width="1.5"'
            ' marker-end="url(#tip)"/>'
        )

    def bar(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """Draw a bar without outline."""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="none"/>'
        )

    def rule(self, x: float, y: float, to_y: float) -> None:
        """Draw a dashed vertical line."""
        self._parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{to_y:.1f}" stroke="#444" stroke-dasharray="4 3"/>'
        )

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draw a frame around a group of boxes."""
        self._parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="8" fill="none"'
            ' stroke="#bbb"/>'
        )

    def flow(self, texts: Sequence[tuple[str, str, str]], left: float, right: float) -> None:
        """Draw boxes from left to right in as many rows as needed; each has a text, a colour and a ``data-name``."""
        x = left
        for text, fill, name in texts:
            width = 14 + 7.2 * len(text)
            if x > left and x + width > right:
                x, self.bottom = left, self.bottom + HEIGHT + GAP
            self.box(x, self.bottom, width, text, fill, name)
            x += width + GAP
        self.bottom += HEIGHT + GAP

    def render(self) -> str:
        """Return the SVG. Its background is white, so that it is readable on pages of any colour."""
        height = self.bottom + MARGIN - GAP
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height}" width="{self.width}"'
                f' height="{height}" font-family="sans-serif" font-size="13" role="img"'
                f' aria-label="{escape(self.title)}">',
                '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
                ' orient="auto"><path d="M0 0 10 5 0 10z" fill="#444"/></marker></defs>',
                f'<rect width="{self.width}" height="{height}" rx="6" fill="#fff"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )
