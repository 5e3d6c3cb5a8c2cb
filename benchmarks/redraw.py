"""Make docs/evidence.md and its pictures from benchmarks/evidence.md.in and the kept results.

A line `=== NAME: HEADLINE` of the template begins a section on `results/NAME.json` and its row of the first table; with
several names, the section is repeated. `{field[key]:.2f}` is a field of that file, of what `benchmarks.figures`
computes from it, or of another kept file, which the field names. `{field/1e6:.1f}` divides. After a format, `each`
lists values; `seeds` is their mean with a t interval, `median`, `range` (the median with its ends), `count` speak for
themselves. A line `@rows TEXT` is repeated for each element of `rows`, or `@a,b TEXT` for the fields `a` and `b`, and
may use its fields (or `key` and `value`).
"""

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import figures
from benchmarks.keep import kept, measured, median_and_range, seed_interval

DOCS = Path(__file__).resolve().parents[1] / "docs"
TEMPLATE = Path(__file__).with_name("evidence.md.in")
OF_SEVERAL = {"seeds": seed_interval, "count": len, "median": median, "range": median_and_range}
FIELD = re.compile(r"\{(\w[\w %]*)((?:\[[^\]]*\])*)(?:/([\d.e]+))?(?::([^{}]*))?\}")


class Fields(dict[str, Any]):
    """The fields of a section; a name that it does not have is that of another kept file."""

    def __missing__(self, name: str) -> Any:
        return kept(name)


class Source:
    """How a section was measured; the format names further kept files that it shows."""

    def __init__(self, found: dict) -> None:
        self.found = found

    def __format__(self, further: str) -> str:
        return measured(self.found, *map(kept, further.split()))


def written(value: Any, form: str = "") -> str:
    """Write a value: `mean (low to high)`, `median (least to most)`, `5 of 20 (low to high)`, or what it is."""
    number, _, word = form.partition(" ")
    if word == "each":
        return ", ".join(written(one, number) for one in value)
    if word in OF_SEVERAL:
        return written(OF_SEVERAL[word](value), number)
    if value is None or isinstance(value, bool):
        return "-" if value is None else "yes" if value else "no"
    if isinstance(value, dict) and "median" in value:
        return written([value[end] for end in ("median", "min", "max")], form)
    if isinstance(value, dict):
        ends = f" ({value['low']:{form}} to {value['high']:{form}})" if form and value["of"] else ""
        return f"{value['count']:,} of {value['of']:,}{ends}"
    if isinstance(value, list | tuple):
        mean, low, high = (written(one, form) for one in value)
        return f"{mean} ({low} to {high})"
    if isinstance(value, float) and form[-1:] in ("f", "%"):
        form = f"+z{form[1:]}" if form.startswith("+") else f"z{form}"  # no -0.00
    return value if isinstance(value, str) else format(value, form)


def filled(text: str, fields: Mapping[str, Any]) -> str:
    """Put the fields into a text without repeated lines."""

    def one(match: re.Match[str]) -> str:
        value: Any = fields[match[1]]
        for key in re.findall(r"\[([^\]]*)\]", match[2]):
            value = value[int(key)] if isinstance(value, list | tuple) else value[key]
        return written(value / float(match[3]) if match[3] else value, match[4] or "")

    return FIELD.sub(one, text)


def rows_filled(text: str, fields: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a section, those that begin with `@` once for each element."""
    for line in text.split("\n"):
        name, _, row = line.partition(" ")
        if not name.startswith("@"):
            yield filled(line, fields)
            continue
        names = name[1:].split(",")
        elements = {one: fields[one] for one in names} if len(names) > 1 else fields[name[1:]]
        for key, value in elements.items() if isinstance(elements, Mapping) else enumerate(elements):
            own = value if isinstance(value, dict) else {"value": value}
            yield filled(row, ChainMap(own, {"key": key}, fields))  # type: ignore[arg-type]


def anchor(title: str) -> str:
    """Return the anchor of a heading as GitHub and Sphinx make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def page(template: str) -> str:
    """Return the page that a template and the kept results give."""
    head, *sections = re.split(r"^=== ", template, flags=re.M)
    index, texts = [], []
    for section in sections:
        line, _, text = section.partition("\n")
        names, _, headline = line.partition(":")
        for name in names.split():
            found = kept(name)
            fields = Fields(found | {"source": Source(found)} | figures.computed(name, found))
            body = "\n".join(rows_filled(text, fields))
            title = body.partition("\n")[0].removeprefix("## ")
            if headline:
                index.append(f"| [{title}](#{anchor(title)}) | {filled(headline.strip(), fields)} |")
            texts.append(body)
    table = "\n".join(["| what was measured | result |", "|---|---|", *index])
    return head.replace("{index}", table) + "".join(texts)


def study() -> None:
    """Draw the pictures and write the page."""
    figures.draw(DOCS / "figures")
    (DOCS / "evidence.md").write_text(page(TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")
