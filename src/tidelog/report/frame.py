"""Building blocks of every page: one HTML file without network or script, with sections, tables and figures.

Arguments named `body` and `sections` are HTML; all other text is escaped here.

The style sheet covers wide and narrow screens, light and dark, and paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from tidelog._files import open_regular
from tidelog._text import printable
from tidelog.errors import ConfigError
from tidelog.plots import LIGHT, SERIES, Plot, svg

REPORT_KIND = "report"  # of pages that replace one another
_LONG = 60  # characters from which a cell may wrap
_NARROW = 3  # columns of a table that fits on a phone


def page(title: str, lead: str, sections: Sequence[str], kind: str, links: Sequence[tuple[str, str]] = ()) -> str:
    """A whole page; `kind` is its generator, in the head as `mark(kind)`; `links` point to anchors in the page."""
    name = escape(title)
    inner = "".join(f'<a href="#{escape(anchor, quote=True)}">{escape(label)}</a>' for anchor, label in links)
    nav = f'<nav aria-label="Parts of this page">{inner}</nav>' if links else ""
    return printable(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{mark(kind)}\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{name} - tidelog</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{name}</h1>"
        f"<p>{escape(lead)}</p>{nav}</header>\n<main>\n" + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def mark(kind: str) -> str:
    """The line in a page's head that identifies its generator."""
    return f'<meta name="generator" content="tidelog {escape(kind, quote=True)}">'


def check_target(target: Path) -> None:
    """Raise ConfigError unless a page can be written there: to a new file, or in place of an older report."""
    if target.is_dir():
        raise ConfigError(f"{target} is a folder; nothing was written", fix="name a file, as in --out report.html")
    if not target.parent.is_dir():
        raise ConfigError(
            f"{target.parent} is not a folder; nothing was written", fix="create it first, or choose another name"
        )
    if not target.exists():
        return
    try:
        with open_regular(target) as file:
            ours = mark(REPORT_KIND).encode() in file.read(1000)
    except OSError as error:
        raise ConfigError(f"{target} exists and cannot be read: {error}", fix="choose another name") from error
    if not ours:
        raise ConfigError(
            f"{target} exists and is not a report of tidelog; nothing was written", fix="choose another name"
        )


def banner(kind: str, sign: str, headline: str, number: str) -> str:
    """The answer of a page: a sentence, and under it a number; `kind` is a class of the style sheet."""
    return (
        f'<p class="banner {kind}"><span class="sign" aria-hidden="true">{sign}</span>'
        f"<span><b>{escape(headline)}</b> {escape(number)}</span></p>"
    )


def section(title: str, body: str, anchor: str = "", *, printed: bool = True) -> str:
    """A section with a heading; `anchor` is the target of links in the page, `printed` whether paper shows it."""
    attribute = f' id="{escape(anchor, quote=True)}"' if anchor else ""
    attribute += "" if printed else ' class="screen"'
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


def figure(name: str, picture: Plot | None, description: str, key: str = "") -> str:
    """A picture with its name above, and a text and the HTML of a legend below; None: only the text."""
    drawn = "" if picture is None else svg(picture)
    caption = f"<p>{escape(description)}</p>" if description else ""
    return f"<figure><figcaption><b>{escape(name)}</b></figcaption>{drawn}{key}{caption}</figure>"


def grid(figures: Iterable[str], *, broad: bool = False) -> str:
    """Figures in a grid; `broad` figures need more width."""
    drawn, kind = "".join(figures), "grid broad" if broad else "grid"
    return f'<div class="{kind}">{drawn}</div>' if drawn else ""


def folded(summary: str, body: str) -> str:
    """A part behind one line, which opens on request; it is not printed unless it is open."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def beside(body: str, figure: str) -> str:
    """Text with a figure on its right, or below on narrow screens."""
    return f'<div class="beside"><div>{body}</div>{figure}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    *,
    marked: Sequence[int] = (),
    named: bool = False,
) -> str:
    """A table; `marked` rows are highlighted, `named` rows begin with a heading; on a phone wide rows are stacked."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    stacked = len(head) > _NARROW
    body = "".join(_row(head if stacked else (), row, named, position in marked) for position, row in enumerate(rows))
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    label = f' role="region" aria-label="{escape(caption, quote=True)}"' if caption else ""
    kind = "wide stacked" if stacked else "wide"
    return (f'<div class="{kind}" tabindex="0"{label}><table>{title}<thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")  # fmt: skip


def _row(head: Sequence[str], cells: Sequence[str], named: bool, stands_out: bool) -> str:
    """A row; with a `head`, every cell knows the name of its column."""
    first = f'<th scope="row">{escape(cells[0])}</th>' if named else ""
    rest = ""
    for position, cell in list(enumerate(cells))[1 if named else 0 :]:
        kind = ' class="long"' if len(cell) > _LONG else ""
        name = f' data-label="{escape(head[position], quote=True)}"' if head else ""
        rest += f"<td{kind}{name}>{escape(cell)}</td>"
    return f'<tr class="marked">{first}{rest}</tr>' if stands_out else f"<tr>{first}{rest}</tr>"


_COLOURS = " ".join(f"--{name}: {colour};" for name, colour in LIGHT.items())

_LIGHT = f"""{_COLOURS} --paper: #fff; --pale: #f4f7f9; --good: #1f7a4d; --error: #b3261e; --warning: #8a5a00;
  --note: #3c5a78; --on: #fff; --shade: #b9c4ce; color-scheme: light;"""

_DARK = """--ink: #e6ebf0; --soft: #a4b1bd; --line: #38444f; --bar: #5fb3c8; --paper: #12181e; --pale: #1b242c;
  --good: #5cc08d; --error: #ff8f86; --warning: #e2b04a; --note: #9dbcd9; --on: #12181e; --log: #7c8a96;
  --shade: #53616d; --better: #6cb8ec; --worse: #ff9a5a; --same: #a4b1bd; --unknown: #c9a0ea;
  --c0: #57b2ee; --c1: #ff9150; --c2: #3dcfa2; --c3: #eda1c9; --c4: #eec052; --c5: #9bd8ff; --c6: #c3a8f0;
  --c7: #c5ced6; color-scheme: dark;"""

# a class sets one colour; the element decides whether it fills or strokes
_SERIES = "\n".join(f".c{i} {{ --mine: var(--c{i}); }}" for i in range(SERIES))

STYLE = (
    f"""
:root {{ {_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
{_SERIES}
.log {{ --mine: var(--log); }}
"""
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1.2rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { margin: 0; font-size: 1.7rem; overflow-wrap: anywhere; }
header p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); font-size: 1.2rem; }
h3 { margin: 0; font-size: 1rem; overflow-wrap: anywhere; }
.apart { margin: 1.2rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; overflow-wrap: anywhere; }
ul { margin: .4rem 0; max-width: 46rem; }
li { overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9em; }
pre { overflow-x: auto; padding: .7rem; background: var(--pale); border-radius: 6px; }
nav { margin-top: .8rem; } nav a { display: inline-block; margin-right: 1rem; color: var(--better); }
.soft { color: var(--soft); font-size: .9rem; }
.short { max-width: 60rem; margin: .6rem 0; font-size: 1.1rem; }

.paper { display: none; }
.verdict { max-width: none; padding: .7rem 1rem; border-radius: 8px; border-left: 6px solid; font-size: 1.1rem;
  background: var(--pale); }
.verdict.good { border-color: var(--good); } .verdict.error { border-color: var(--error); }
.verdict.warning { border-color: var(--warning); }
.banner { display: flex; gap: .9rem; align-items: center; max-width: none; margin: .5rem 0; padding: .7rem 1rem;
  border: 2px solid var(--mine); border-left-width: 14px; border-radius: 8px; background: var(--pale); }
.banner b { display: block; color: var(--mine); font-size: 1.5rem; line-height: 1.2; }
.banner .sign { flex: none; width: 2.4rem; font-size: 1.9rem; line-height: 1; text-align: center; color: var(--mine); }
.banner span { overflow-wrap: anywhere; }
.better { --mine: var(--better); } .worse { --mine: var(--worse); }
.same { --mine: var(--same); border-style: dashed dashed dashed solid; }
.unknown { --mine: var(--unknown); border-style: double; border-width: 4px 4px 4px 14px; }

.run { margin: 1rem 0 1.6rem; }
details { margin: .6rem 0; } summary { padding: .3rem 0; color: var(--better); cursor: pointer; }
article { margin: .7rem 0; padding: .6rem .9rem; border: 1px solid var(--line); border-left: 4px solid;
  border-radius: 6px; break-inside: avoid; }
article.error { border-left-color: var(--error); } article.warning { border-left-color: var(--warning); }
article.note { border-left-color: var(--note); }
.badge { padding: .05rem .5rem; border-radius: 1rem; color: var(--on); font-size: .8rem; font-weight: 600; }
.badge.error { background: var(--error); } .badge.warning { background: var(--warning); }
.badge.note { background: var(--note); }
dl { display: grid; grid-template-columns: fit-content(18rem) minmax(0, 1fr); gap: .1rem .8rem; margin: .4rem 0 0; }
dl.tight { grid-template-columns: fit-content(40%) minmax(0, 1fr); font-size: .85rem; }
dt { color: var(--soft); overflow-wrap: anywhere; } dd { margin: 0; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; max-width: none; margin: .5rem 0 .8rem; padding: 0;
  list-style: none; }
.tiles li { padding: .4rem .9rem; border: 1px solid var(--line); border-radius: 8px; color: var(--soft); }
.tiles b { display: block; color: var(--ink); font-size: 1.25rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(240px, 100%), 1fr)); gap: .8rem;
  align-items: start; }
.grid.broad { grid-template-columns: repeat(auto-fill, minmax(min(310px, 100%), 1fr)); }
figure { margin: 0; padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 8px; break-inside: avoid; }
figcaption { margin-bottom: .3rem; overflow-wrap: anywhere; }
figure p { margin: .2rem 0 0; color: var(--soft); font-size: .85rem; }
svg { display: block; width: 100%; height: auto; max-width: 420px; font-size: 11px; }
svg path { stroke-linejoin: round; } .answer svg { max-width: 500px; }
.beside { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 390px); gap: 1rem; align-items: start; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; max-width: none; margin: .4rem 0; padding: 0;
  list-style: none; font-size: .9rem; }
.legend li::before { content: ""; display: inline-block; width: 1.1rem; height: .7rem; margin-right: .4rem;
  border-radius: 2px; background: var(--mine); }
.wide { overflow-x: auto; margin: .4rem 0;  /* a shade at the sides says that there is more to scroll to */
  background: linear-gradient(90deg, var(--paper) 50%, transparent) 0 / 24px 100% no-repeat local,
    linear-gradient(270deg, var(--paper) 50%, transparent) 100% / 24px 100% no-repeat local,
    linear-gradient(90deg, var(--shade), transparent) 0 / 10px 100% no-repeat scroll,
    linear-gradient(270deg, var(--shade), transparent) 100% / 10px 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .85rem; }
caption { padding: .2rem 0; color: var(--soft); text-align: left; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; }
tbody th { font-weight: 400; }
td.long { min-width: 16rem; white-space: normal; }
tr.marked > * { background: var(--pale); font-weight: 600; }
@media screen and (max-width: 820px) { .beside { grid-template-columns: minmax(0, 1fr); } }
@media screen and (max-width: 560px) { body { padding: .8rem; } h1 { font-size: 1.35rem; } .short { font-size: 1rem; }
  th, td { white-space: normal; overflow-wrap: anywhere; }
  .stacked thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .stacked table, .stacked caption, .stacked tbody, .stacked tr, .stacked th, .stacked td { display: block; }
  .stacked tr { padding: .35rem .4rem; border-bottom: 1px solid var(--line); }
  .stacked th, .stacked td { padding: .05rem 0; border: 0; } .stacked tbody th { font-weight: 600; }
  .stacked td { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: .6rem; min-width: 0; }
  .stacked td::before { content: attr(data-label); color: var(--soft); font-weight: 400; }
  .stacked td:empty { display: none; }
  dl:not(.tight) { grid-template-columns: 1fr; }
  dl:not(.tight) dd { margin-bottom: .3rem; } .banner { padding: .6rem .7rem; } .banner b { font-size: 1.25rem; } }
@page { size: A4; margin: 12mm; }
@media print { html { font-size: 10.5px; } body { max-width: none; padding: 0; font-size: 10.5px; line-height: 1.35; }
  p, ul, .short { max-width: none; } h2 { margin: 1rem 0 .4rem; } .banner { padding: .3rem .8rem; }
  .beside { grid-template-columns: minmax(0, 1fr) 250px; } figure { padding: .4rem .5rem; }
  .tiles li { padding: .1rem .6rem; } .tiles b { font-size: 1.05rem; }
  .wide { overflow: visible; background: none; }
  nav, .screen, details:not([open]) { display: none; } .paper { display: block; }
  th, td { padding: .1rem .4rem; white-space: normal; overflow-wrap: anywhere; font-size: 9px; }
  [role=region] th, [role=region] td { overflow-wrap: break-word; }
  .badge { border: 1px solid; color: inherit; background: none !important; }
  h2, h3, .soft, .legend { break-after: avoid; }
  tr, .banner, dl { break-inside: avoid; } thead { display: table-header-group; }
  svg, .banner, .legend { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  #words .beside { grid-template-columns: minmax(0, 1fr); } #words figure { display: none; }
  .answer svg { max-width: 330px; }
  .grid, .grid.broad { grid-template-columns: 1fr 1fr 1fr; gap: .5rem; } pre { white-space: pre-wrap; } }
"""
)
