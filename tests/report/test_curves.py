"""Pictures of runs: something is drawn, and what cannot be drawn is said."""

import numpy as np

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
