"""Reports: readable, complete, and the same after JSON."""

import json

from tests.data.visits import mapping, visits
from tidelog.data.raw import Problem, Report
from tidelog.data.read import validate

PROBLEM = Problem(
    "error", "missing value", "age", (3, 7), 2, "empty cells", "a value in every row", "fill " * 40, (4, 8)
)


def test_text_names_rows_and_lines_and_is_at_most_100_columns_wide() -> None:
    report = Report("visits.csv", 1_000, (PROBLEM,))
    assert report.lines[0] == "visits.csv: 1 error, 0 warnings, 0 notes, 1,000 rows read"
    assert report.lines[1] == "error: missing value in 'age', 2 rows: 3, 7 (lines 4, 8)"
    assert report.text() == "\n".join(report.lines)
    assert max(map(len, report.lines)) <= 100
    assert not report.ok


def test_only_the_first_ten_rows_are_listed_with_the_count() -> None:
    frame = visits().with_columns(age=float("nan"))
    problem = validate(frame, mapping()).errors[0]
    assert problem.rows == tuple(range(1, 11))
    assert problem.count == 39
    assert "39 rows: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..." in problem.text()


def test_levels_stay_apart_and_json_brings_everything_back() -> None:
    report = validate(visits(), mapping(actions=None, action_mask=None))
    assert report.ok
    assert {problem.check for problem in report.warnings} == {"no bootstrap target"}
    assert {problem.check for problem in report.notes} == {"actions inferred"}
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report
