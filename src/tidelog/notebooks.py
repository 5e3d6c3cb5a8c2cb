"""Small HTML tables for notebooks: no script, no style sheet, and all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

LEFT = ' style="text-align: left; white-space: pre-wrap"'


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of two columns, the names of facts and their values; values are written as text."""
    return rows_table(title, (), facts.items())


def rows_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a heading for every column, if there are any; the first cell of a row is its name."""
    top = "".join(f"<th{LEFT}>{escape(name)}</th>" for name in head)
    body = [
        f"<tr><th{LEFT}>{escape(str(name))}</th>{''.join(f'<td{LEFT}>{escape(str(one))}</td>' for one in cells)}</tr>"
        for name, *cells in rows
    ]
    return f"<p><b>{escape(title)}</b></p><table>{f'<tr>{top}</tr>' if top else ''}{''.join(body)}</table>"
