"""What every page is made of: one HTML file without network or script, its sections, tables and figures, all escaped.

Arguments named `body`, `picture` and `sections` are HTML already; everything else is text and is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tidelog.report.style import STYLE

_LONG = 60  # letters in a cell that may take several lines


def page(title: str, lead: str, sections: Sequence[str], kind: str, links: Sequence[tuple[str, str]] = ()) -> str:
    """A whole page; `kind` is what made it, and stands in its head as `mark(kind)`; `links` lead to anchors within."""
    name = escape(title)
    inner = "".join(f'<a href="#{escape(anchor, quote=True)}">{escape(words)}</a>' for anchor, words in links)
    nav = f'<nav aria-label="Parts of this page">{inner}</nav>' if links else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{mark(kind)}\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{name} - tidelog</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{name}</h1>"
        f"<p>{escape(lead)}</p>{nav}</header>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def mark(kind: str) -> str:
    """The line in a page's head by which its maker knows it again."""
    return f'<meta name="generator" content="tidelog {escape(kind, quote=True)}">'


def section(title: str, body: str, anchor: str = "") -> str:
    """A part of the page under a heading; `anchor` is what links within the page name."""
    there = f' id="{escape(anchor, quote=True)}"' if anchor else ""
    return f"<section{there}><h2>{escape(title)}</h2>{body}</section>"


def heading(text: str) -> str:
    """A heading within a section."""
    return f'<h3 class="apart">{escape(text)}</h3>'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of text; `kind` is a class of the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """A list of texts, or nothing."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def tiles(shown: Iterable[tuple[str, str]]) -> str:
    """Numbers with what they count, side by side."""
    items = "".join(f"<li><b>{escape(value)}</b> {escape(name)}</li>" for value, name in shown)
    return f'<ul class="tiles">{items}</ul>'


def legend(pairs: Iterable[tuple[str, str]]) -> str:
    """What colours stand for: classes of the style sheet with their names."""
    items = "".join(f'<li class="{kind}">{escape(name)}</li>' for kind, name in pairs)
    return f'<ul class="legend">{items}</ul>'


def definitions(pairs: Iterable[tuple[str, str]], *, tight: bool = False) -> str:
    """Names with what they are; `tight` ones stay side by side on a phone."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs)
    return f'<dl class="tight">{rows}</dl>' if tight else f"<dl>{rows}</dl>"


def command(line: str) -> str:
    """A command that a person may type."""
    return f"<pre>{escape(line)}</pre>"


def figure(name: str, picture: str, said: str) -> str:
    """A picture under its name and over what is to be said of it."""
    told = f"<p>{escape(said)}</p>" if said else ""
    return f"<figure><figcaption><b>{escape(name)}</b></figcaption>{picture}{told}</figure>"


def grid(figures: Iterable[str], *, broad: bool = False) -> str:
    """Figures side by side where there is room; `broad` ones need more of it."""
    drawn, kind = "".join(figures), "grid broad" if broad else "grid"
    return f'<div class="{kind}">{drawn}</div>' if drawn else ""


def beside(body: str, picture: str) -> str:
    """Words with a picture to the right of them where there is room, else below."""
    return f'<div class="beside"><div>{body}</div>{picture}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    *,
    marked: Sequence[int] = (),
    named: bool = False,
) -> str:
    """A table in a box of its own that scrolls sideways; `marked` rows stand out, `named` rows begin with a heading."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(_row(row, named, place in marked) for place, row in enumerate(rows))
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    label = f' role="region" aria-label="{escape(caption, quote=True)}"' if caption else ""
    return (f'<div class="wide" tabindex="0"{label}><table>{said}<thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")  # fmt: skip


def _row(cells: Sequence[str], named: bool, stands_out: bool) -> str:
    first = f'<th scope="row">{escape(cells[0])}</th>' if named else ""
    rest = "".join(
        f'<td class="long">{escape(cell)}</td>' if len(cell) > _LONG else f"<td>{escape(cell)}</td>"
        for cell in cells[1 if named else 0 :]
    )
    return f'<tr class="marked">{first}{rest}</tr>' if stands_out else f"<tr>{first}{rest}</tr>"
