"""What a prompt or a notebook prints: one short paragraph, without arrays."""

import pytest

from tidelog import BC, IQL
from tidelog._text import facts_table, rows_table

HOSTILE = "<script>alert('x')</script>&\"<img src=x onerror=y>"


def test_an_algorithm_is_printed_as_it_was_written():
    assert repr(IQL()) == "IQL()"
    assert repr(IQL(temperature=10.0, hidden=(8, 8))) == "IQL(temperature=10.0, hidden=(8, 8))"
    assert eval(repr(BC(learning_rate=0.5)), {"BC": BC}) == BC(learning_rate=0.5)


@pytest.mark.parametrize("place", range(5))
def test_every_cell_of_a_table_is_escaped(place):
    title, name, value, head, cell = (HOSTILE if i == place else "plain" for i in range(5))
    for source in (facts_table(title, {name: value}), rows_table(title, (head, "b"), [(name, cell)])):
        assert "<script" not in source
        assert "<img" not in source
        assert source.count("<table>") == source.count("</table>") == 1
