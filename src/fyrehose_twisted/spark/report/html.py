"""Parts of self-contained HTML pages with plots."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from fyrehose_twisted.spark.report.style import DARK, Plot


class PageTemplate(Template):
    """Template of a page. CSS and scripts contain both ``$`` and single ``@``."""

    delimiter = "@@"


def render_page(
    title: str,
    sections: Iterable[str],
    plots: Iterable[Plot],
    footer: str,
    sources: Iterable[str] = (),
    *,
    dark: Mapping[str, str] = DARK,
) -> str:
    """Render a page. Nothing in the data of the plots can become markup or script.

    :param footer: text of the footer, before the list of ``sources``.
    :param dark: replacement of each colour of the plots in dark mode.
    """
    figures = {plot.name: json.loads(plot.figure.to_json()) for plot in plots if plot.figure is not None}
    data = json.dumps({"figures": figures, "dark": dark}, separators=(",", ":")).replace("<", "\\u003c")
    template = files("fyrehose_twisted.spark.report").joinpath("page.html").read_text("utf-8")
    main = "\n".join(sections)
    foot = f"<footer><p>{escape(footer)}</p>{render_list(sources)}</footer>"
    body = f"<header><h1>{escape(title)}</h1></header>\n<main>\n{main}\n</main>\n{foot}"
    return PageTemplate(template).substitute(TITLE=escape(title), BODY=body, FIGURES=data, PLOTLY=get_plotlyjs())


def render_verdict(level: str, headline: str, sentences: Sequence[str], findings: Iterable[str]) -> str:
    """Render the summary at the beginning of a page.

    :param level: class of the section, such as ``good``.
    """
    return (
        f'<section class="card verdict {level}" id="verdict" aria-labelledby="headline">'
        f'<h2 id="headline">{escape(headline)}</h2><p>{escape(" ".join(sentences))}</p>'
        f"{render_list(findings)}</section>"
    )


def render_table(name: str, title: str, note: str, head: str, body: str) -> str:
    """Render a table.

    :param head: cells of the heading, as HTML.
    :param body: rows, as HTML.
    """
    title = escape(title)
    small = f" <small>{escape(note)}</small>" if note else ""
    return (
        f'<div class="table" role="region" tabindex="0" aria-label="{title}"><table id="{escape(name)}">'
        f"<caption>{title}{small}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>\n{body}</tbody></table></div>"
    )


def render_figure(plot: Plot) -> str:
    """Render a plot with its legend and its caption."""
    name, title, caption = escape(plot.name), escape(plot.title), escape(plot.caption)
    if plot.figure is None:
        return f'<section class="card" id="{name}"><h3>{title}</h3><p class="soft">{caption}</p></section>'
    keys = "".join(
        f'<li><button type="button" aria-pressed="true" data-group="{escape(key.group)}">'
        f'<i style="--swatch:{key.colour};--swatch-dark:{DARK[key.colour]}"></i>'
        f"<bdi>{escape(key.text)}</bdi></button></li>"
        for key in plot.legend
    )
    legend = f'<ul class="legend" aria-label="What is shown">{keys}</ul>' if len(plot.legend) > 1 else ""
    height = int(plot.figure.layout.height)
    return (
        f'<figure class="card" id="{name}"><h3>{title}</h3>{legend}'
        f'<div class="plot" data-figure="{name}" role="img" aria-label="{title}. {caption}" '
        f'style="min-height:{height}px"></div><figcaption>{caption}</figcaption></figure>'
    )


def render_list(items: Iterable[str]) -> str:
    """Render a list; nothing if it is empty."""
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{listed}</ul>" if listed else ""
