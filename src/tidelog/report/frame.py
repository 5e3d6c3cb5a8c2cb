"""Building blocks of every page: one HTML file without network or script, with sections, tables and figures.

Arguments named `body`, `picture` and `sections` are HTML; all other text is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tidelog.report.style import STYLE

_LONG = 60  # characters from which a cell may wrap


def page(title: str, lead: str, sections: Sequence[str], kind: str, links: Sequence[tuple[str, str]] = ()) -> str:
    """A whole page; `kind` is its generator, in the head as `mark(kind)`; `links` point to anchors in the page."""
    name = escape(title)
    inner = "".join(f'<a href="#{escape(anchor, quote=True)}">{escape(label)}</a>' for anchor, label in links)
    nav = f'<nav aria-label="Parts of this page">{inner}</nav>' if links else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{mark(kind)}\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{name} - tidelog</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{name}</h1>"
        f"<p>{escape(lead)}</p>{nav}</header>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def mark(kind: str) -> str:
    """The line in a page's head that identifies its generator."""
    return f'<meta name="generator" content="tidelog {escape(kind, quote=True)}">'


def section(title: str, body: str, anchor: str = "") -> str:
    """A section with a heading; `anchor` is the target of links in the page."""
    attribute = f' id="{escape(anchor, quote=True)}"' if anchor else ""
    return f"<section{attribute}><h2>{escape(title)}</h2>{body}</section>"


def heading(text: str) -> str:
    """A heading within a section."""
    return f'<h3 class="apart">{escape(text)}</h3>'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of text; `kind` is a class of the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """A list of texts; empty for no texts."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def tiles(shown: Iterable[tuple[str, str]]) -> str:
    """Numbers with labels, side by side."""
    items = "".join(f"<li><b>{escape(value)}</b> {escape(name)}</li>" for value, name in shown)
    return f'<ul class="tiles">{items}</ul>'


def legend(pairs: Iterable[tuple[str, str]]) -> str:
    """Legend: colour classes of the style sheet with names."""
    items = "".join(f'<li class="{kind}">{escape(name)}</li>' for kind, name in pairs)
    return f'<ul class="legend">{items}</ul>'


def definitions(pairs: Iterable[tuple[str, str]], *, tight: bool = False) -> str:
    """A list of names with descriptions; `tight` keeps two columns on a phone."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs)
    return f'<dl class="tight">{rows}</dl>' if tight else f"<dl>{rows}</dl>"


def command(line: str) -> str:
    """A shell command."""
    return f"<pre>{escape(line)}</pre>"


def figure(name: str, picture: str, description: str) -> str:
    """A picture with its name above and a text below."""
    caption = f"<p>{escape(description)}</p>" if description else ""
    return f"<figure><figcaption><b>{escape(name)}</b></figcaption>{picture}{caption}</figure>"


def grid(figures: Iterable[str], *, broad: bool = False) -> str:
    """Figures in a grid; `broad` figures need more width."""
    drawn, kind = "".join(figures), "grid broad" if broad else "grid"
    return f'<div class="{kind}">{drawn}</div>' if drawn else ""


def with_picture(body: str, picture: str) -> str:
    """Text with a picture on its right, or below on narrow screens."""
    return f'<div class="beside"><div>{body}</div>{picture}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    *,
    marked: Sequence[int] = (),
    named: bool = False,
) -> str:
    """A table that scrolls sideways; `marked` rows are highlighted, `named` rows begin with a heading."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(_row(row, named, place in marked) for place, row in enumerate(rows))
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    label = f' role="region" aria-label="{escape(caption, quote=True)}"' if caption else ""
    return (f'<div class="wide" tabindex="0"{label}><table>{title}<thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")  # fmt: skip


def _row(cells: Sequence[str], named: bool, stands_out: bool) -> str:
    first = f'<th scope="row">{escape(cells[0])}</th>' if named else ""
    rest = "".join(
        f'<td class="long">{escape(cell)}</td>' if len(cell) > _LONG else f"<td>{escape(cell)}</td>"
        for cell in cells[1 if named else 0 :]
    )
    return f'<tr class="marked">{first}{rest}</tr>' if stands_out else f"<tr>{first}{rest}</tr>"
