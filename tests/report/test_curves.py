"""Pictures of runs: something is drawn, and what cannot be drawn is said."""

import numpy as np
import pytest
from matplotlib.image import imread

from benchmarks.curves import draw_curves
from tidelog import ConfigError
from tidelog.training.metrics import series


def reports(members=2, slope=1.0):
    return [
        {"update": update, "member": member, "seed": member + 5, "loss": slope * update + member}
        for update in (10, 20, 30)
        for member in range(members)
    ]


def test_a_series_is_a_row_a_seed_and_a_column_a_report():
    rows = [*reports(), {"update": 40, "member": 1, "seed": 6, "loss": 7.0}, {"update": 50, "member": 0, "seed": 5}]
    updates, values = series(rows, "loss")
    np.testing.assert_array_equal(updates, [10, 20, 30, 40])
    np.testing.assert_array_equal(values, [[10, 20, 30, np.nan], [11, 21, 31, 7]])


def colours(path):
    """How many pixels there are of each colour other than white and grey."""
    pixels = (imread(path)[:, :, :3] * 255).round().astype(int).reshape(-1, 3)
    vivid = pixels[np.ptp(pixels, axis=1) > 60]
    return {"blue": int((vivid.argmax(1) == 2).sum()), "orange": int((vivid.argmax(1) == 0).sum()), "all": len(pixels)}


def test_a_picture_shows_every_run(tmp_path):
    one = draw_curves({"iql": reports()}, "loss", tmp_path / "one.png")
    assert one == tmp_path / "one.png"
    assert colours(one)["blue"] > 500
    assert colours(one)["orange"] == 0
    two = draw_curves(
        {"iql": reports(), "bc": reports(3, -1.0)}, "loss", tmp_path / "two.png", levels={"best": 5.0}, title="both"
    )
    assert min(colours(two).values()) > 500
    assert colours(two)["all"] == colours(one)["all"] > 400_000


def test_members_that_stopped_earlier_leave_a_gap_and_not_a_blank(tmp_path):
    rows = [row for row in reports() if not (row["member"] == 1 and row["update"] == 30)]
    assert colours(draw_curves({"iql": rows}, "loss", tmp_path / "gap.png"))["blue"] > 500


@pytest.mark.parametrize(("rows", "message"), [
    (reports(), "no report has the metric 'los': did you mean 'loss'"), ([], "no report has the metric 'los'"),
])  # fmt: skip
def test_a_metric_that_there_is_not_is_refused(rows, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        draw_curves({"iql": rows}, "los", tmp_path / "no.png")
    assert not (tmp_path / "no.png").exists()
