"""The figures of the house: each is counted, and the aims are of figures that exist."""

from benchmarks.house import AIMS, figures


def test_every_figure_is_counted_and_every_aim_has_its_figure():
    counted = figures()
    assert set(AIMS) <= set(counted)
    assert all(value > 0 for name, value in counted.items() if name != "class names twice")
