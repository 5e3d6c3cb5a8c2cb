"""The style sheet of every page: wide and narrow screens, light and dark, and paper.

The line colours `c0` to `c7` are distinguishable with every form of colour vision (after Okabe & Ito 2008); their
meaning is always given as text too.
"""

_LIGHT = """--ink: #1c2733; --soft: #566675; --line: #d8dfe6; --bar: #2f7f93; --paper: #fff; --pale: #f4f7f9;
  --good: #1f7a4d; --error: #b3261e; --warning: #8a5a00; --note: #3c5a78; --on: #fff; --log: #8a97a3; --shade: #b9c4ce;
  --better: #00609a; --worse: #b34700; --same: #566675; --unknown: #6d3f8f;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5588c; --c4: #a87400; --c5: #3c9bd4; --c6: #7a5aa6;
  --c7: #444f59; color-scheme: light;"""

_DARK = """--ink: #e6ebf0; --soft: #a4b1bd; --line: #38444f; --bar: #5fb3c8; --paper: #12181e; --pale: #1b242c;
  --good: #5cc08d; --error: #ff8f86; --warning: #e2b04a; --note: #9dbcd9; --on: #12181e; --log: #7c8a96;
  --shade: #53616d; --better: #6cb8ec; --worse: #ff9a5a; --same: #a4b1bd; --unknown: #c9a0ea;
  --c0: #57b2ee; --c1: #ff9150; --c2: #3dcfa2; --c3: #eda1c9; --c4: #eec052; --c5: #9bd8ff; --c6: #c3a8f0;
  --c7: #c5ced6; color-scheme: dark;"""

# a class sets one colour; the element decides whether it fills or strokes
_SERIES = "\n".join(f".c{i} {{ --mine: var(--c{i}); }}" for i in range(8))

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
.none { --mine: var(--line); border-style: dotted dotted dotted solid; }
.none b { color: var(--soft); font-size: 1.15rem; }
.run { margin: 1rem 0 1.6rem; }
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
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(240px, 100%), 1fr)); gap: .8rem; }
.grid.broad { grid-template-columns: repeat(auto-fill, minmax(min(310px, 100%), 1fr)); }
figure { margin: 0; padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 8px; break-inside: avoid; }
figcaption { margin-bottom: .3rem; overflow-wrap: anywhere; }
figure p { margin: .2rem 0 0; color: var(--soft); font-size: .85rem; }
svg { display: block; width: 100%; height: auto; max-width: 420px; }
svg.wide-picture { max-width: 620px; }
svg rect { fill: var(--mine, var(--bar)); } svg line { stroke: var(--line); }
svg text { font-size: 11px; fill: var(--soft); }
svg .curve { fill: none; stroke: var(--mine); stroke-width: 1.8; stroke-linejoin: round; }
svg .thin { stroke-width: .7; opacity: .4; } svg .dashed { stroke-dasharray: 4 2.5; }
svg .band { fill: var(--mine); opacity: .2; } svg .ghost { fill: var(--mine); opacity: .22; }
svg .ink { stroke: var(--ink); stroke-width: 1.2; } svg .reach { stroke: var(--mine); stroke-width: 3; }
svg .dot { fill: var(--mine); } svg .strong { fill: var(--ink); font-weight: 600; }
svg .haloed { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
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
thead th { color: var(--soft); font-weight: 600; } tbody th { font-weight: 400; }
td.long { min-width: 16rem; white-space: normal; }
tr.marked > * { background: var(--pale); font-weight: 600; }
@media (max-width: 820px) { .beside { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 560px) { body { padding: .8rem; } h1 { font-size: 1.35rem; }
  dl:not(.tight) { grid-template-columns: 1fr; }
  dl:not(.tight) dd { margin-bottom: .3rem; } .banner { padding: .6rem .7rem; } .banner b { font-size: 1.25rem; } }
@media print { html { font-size: 11px; } body { max-width: none; padding: 0; font-size: 11px; }
  .wide { overflow: visible; background: none; } nav { display: none; }
  th, td { padding: .1rem .25rem; white-space: normal; overflow-wrap: anywhere; font-size: 8px; }
  [role=region] th, [role=region] td { overflow-wrap: break-word; }
  .badge { border: 1px solid; color: inherit; background: none !important; } h2, h3 { break-after: avoid; }
  tr, .banner, dl { break-inside: avoid; } thead { display: table-header-group; }
  svg, .banner, .legend { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .grid, .grid.broad { grid-template-columns: 1fr 1fr; } pre { white-space: pre-wrap; } }
"""
)
