"""What the inspection says, and the mapping that it proposes."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from tests.data.visits import mapping, visits
from tests.shared import shared
from tidelog import Log
from tidelog.data.columns import Columns
from tidelog.data.inspect import describe_table, inspect_log
from tidelog.data.read import read_log, validate
from tidelog.errors import ConfigError, LogError
from tidelog.types import Discrete


def test_continuous_actions_in_numbers() -> None:
    continuous = mapping(action="sofa", actions=None, action_mask=None, bounds=(0, 30))
    assert re.search(r"actions: mean \[-?[\d.]{1,7}\], std \[", inspect_log(read_log(visits(), continuous)).text())


def test_a_proposed_mapping_reads_the_table(tmp_path: Path) -> None:
    renamed = visits().rename({"dose": "action", "r": "reward", "died": "done", "left": "timeout", "p": "propensity"})
    frame = renamed.rename({f"m{place}": f"mask_{place}" for place in range(3)})
    frame.write_csv(tmp_path / "visits.csv")
    described = describe_table(tmp_path / "visits.csv")
    assert described.proposed == Columns.from_mapping(tomllib.loads(described.toml))
    log = read_log(frame, described.proposed)
    assert log.fingerprint() == read_log(visits(), mapping(actions=None)).fingerprint()
    kinds = {one.name: one.kind for one in described.fields}
    assert kinds["ward"] == "word"
    assert kinds["done"] == "flag"
    assert kinds["age"] == "number"
    assert kinds["hour"] == "whole number"
    assert "proposed mapping" in described.text()
    assert json.dumps(described.to_json())


def test_a_table_that_looks_like_nothing_is_described_without_a_mapping() -> None:
    described = describe_table(pl.DataFrame({"when": ["2020-01-01"], "x": [None], "weird": [[1, 2]]}))
    assert described.proposed is None
    assert "# action = ..." in described.toml
    assert [one.kind for one in described.fields] == ["time", "empty", "list"]


@pytest.mark.full
def test_sales_are_told_to_be_interactions_and_what_remains() -> None:
    described = describe_table(shared("data/online_retail_cc0/online_retail_2010_2011.parquet"))
    assert described.interactions == {"user": "CustomerID", "item": "StockCode", "time": "ts"}
    text = described.text()
    assert "'Quantity' is not proposed as reward: 10,624 values are negative, down to -80,995" in " ".join(text.split())
    assert "interaction log" in text
    assert "135,080" in text
    assert "tidelog train" not in text
    assert described.report is not None
    assert not described.report.ok


def test_sessions_with_several_items_a_row_are_told_to_be_split() -> None:
    described = describe_table(shared("data/uci_entree/sessions.csv.gz"))
    assert described.proposed is None
    assert described.interactions == {"user": "user", "item": "items", "time": "ts"}
    text = described.text()
    for said in ("split them, one item per row", "'session_id' differs in every row", "# action = ...", "not complete"):
        assert said in text


def test_lists_of_items_and_of_events_are_to_be_written_one_a_row(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["a", "b"], "time": ["2026-01-02", "2026-01-03"], "item": [[7, 8], [8]]})
    frame.write_parquet(tmp_path / "a.parquet")
    said = " ".join(describe_table(tmp_path / "a.parquet").text().split())
    assert 'each at the time of its row (a basket of items): split text into lists, explode("item") in Polars' in said
    events = [{"aid": 7, "ts": 1.7e12, "type": "clicks"}, {"aid": 8, "ts": 1.7e12 + 9_000, "type": "orders"}]
    lines = [json.dumps({"session": number, "events": events[number % 2 :]}) for number in range(4)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    said = " ".join(describe_table(tmp_path / "a.jsonl").text().split())
    assert 'one item per row: split text into lists, explode("events"), then unnest("events") in Polars' in said
    frame.explode("item").write_csv(tmp_path / "one.csv")
    assert describe_table(tmp_path / "one.csv").interaction_roles() == {"user": "user", "item": "item", "time": "time"}


@pytest.mark.parametrize(
    ("quantity", "reason"),
    [
        ([1.0, 2.0, -3.0, -1.0] * 50, "'quantity' is not proposed as reward: 100 values are negative, down to -3 "),
        ([1.0] * 199 + [101.0], "its largest value is 101, and 99% of those other than 0 are at most 1"),
        ([1.0] * 199 + [100.0], None),
        ([0.0] * 199 + [1.0], None),  # rare, not extreme
        ([0.0] * 198 + [1.0, 2.0], None),
    ],
)
def test_rewards_with_negative_or_extreme_values_are_not_proposed(quantity: list[float], reason: str | None) -> None:
    frame = pl.DataFrame({"user_id": ["a", "b"] * 100, "item_id": ["x", "y", "z", "z"] * 50, "timestamp": range(200)})
    described = describe_table(frame.with_columns(quantity=pl.Series(quantity)))
    assert ("rating" in described.interactions) == (reason is None)
    assert ("reward" in (described.interaction_roles() or {})) == (reason is None)
    text = " ".join(described.text().split())
    assert reason is None or reason in text
    assert ("not proposed as reward" in text) == (reason is not None)


TREATMENT = {
    "patient": [1, 1, 2, 2, 3], "visit": [0, 1, 0, 1, 0], "severity": [3, 2, 1, 3, 2], "hour": [0, 8, 0, 8, 0],
    "kidneys": ["healthy", "impaired", "healthy", "healthy", "healthy"], "treatment": ["none", "high", "low"] * 1
    + ["low", "none"], "recovered": [0, 1, 0, 0, 1], "ended": [0, 1, 0, 1, 1], "propensity": [0.5, 0.4, 0.2, 0.3, 0.5],
}  # fmt: skip


BASE = {"episode_id": [1, 1, 2, 2] * 5, "obs_0": [0.1, 0.2, 0.3, 0.5] * 5, "rewards": [0.0, 1.0, 0.5, 0.2] * 5}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"action_0": [0.1, -0.5] * 10, "action_1": [0.3, 0.2] * 10}, {"action": ("action_0", "action_1")}),
        ({"action_0": [0, 1] * 10, "action_1": [2, 0] * 10},
         {"action": ("action_0", "action_1"), "actions": (2, 3)}),
        ({"doseMg": [0, 250, 500, 1000] * 5, "dose": [0, 250, 500, 1000] * 5},
         {"action": "dose", "bounds": (0.0, 1000.0)}),
        ({"a": [0, 1] * 10, "allowed_0": [1] * 20, "allowed_1": [0, 1] * 10, "next_allowed_0": [1] * 20,
          "next_allowed_1": [1, 0] * 10},
         {"action_mask": ("allowed_0", "allowed_1"), "next_action_mask": ("next_allowed_0", "next_allowed_1")}),
        ({"a": [0, 1] * 10, "actionMask": ["1,0", "1,1"] * 10}, {"action_mask": "actionMask"}),
        ({"a": ["up", "down"] * 10, "allowed": ["up|down", "down;rest|up"] * 10}, {"action_mask": "allowed"}),
        ({"a": ["up", "down"] * 10, "possible_actions": ["['up']", "['down', 'up']"] * 10},
         {"action_mask": "possible_actions"}),
        ({"a": [0, 1] * 10, "next_obs_0": [0.2, 0.3] * 10}, {"next_observation": ("next_obs_0",)}),
        ({"a": [0, 1] * 10, "state_code": [3, 4] * 10}, {"categorical": ("state_code",)}),
        ({"a": [0, 1] * 10, "state": [3, 705] * 10}, {"categorical": ("state",)}),
        ({"a": [0, 1] * 10, "state": [3.5, 705.0] * 10}, {"categorical": ()}),
        ({"a": [0, 1] * 10, "p": [0.5, 0.25] * 10}, {"propensity": "p"}),
        ({"a": [0, 1] * 10, "p": [0.5, 2.5] * 10}, {"propensity": None}),
        ({"a": [0, 1] * 10, "done": [0, 7] * 10}, {"terminated": None}),
        ({"a": [0, 1] * 10, "is_done": ["no", "yes"] * 10}, {"terminated": "is_done"}),
        ({"a": [0, 1] * 10, "when": ["2020-01-01", "2020-01-02"] * 10}, {"time": "when"}),
    ],
)  # fmt: skip
def test_roles_fit_names_and_values(columns: dict[str, list[object]], expected: dict[str, object]) -> None:
    described = describe_table(pl.DataFrame({**BASE, **columns}, strict=False))
    assert described.proposed is not None, described.text()
    assert (described.proposed.episode, described.proposed.reward) == ("episode_id", "rewards")
    for role, value in expected.items():
        assert getattr(described.proposed, role) == value, described.text()
    assert Columns.from_mapping(tomllib.loads(described.toml)) == described.proposed


def stays(**columns: list[object]) -> pl.DataFrame:
    """Four episodes of three rows, not in the order of their steps."""
    order = [2, 0, 1] * 4
    frame = {"stay": [one for one in "abcd" for _ in range(3)], "step": order, "dose": [0, 1, 0] * 4,
             "action": [0, 1, 1] * 4, "reward": [0.5, 1.0, 0.25] * 4,
             "lactate": [0.1 * one for one in range(12)]}  # fmt: skip
    return pl.DataFrame({**frame, **columns})


@pytest.mark.parametrize(
    ("flags", "reward", "terminated"),
    [
        ([1, 0, 0] * 4, True, "stay_over"),  # the last step of each episode
        ([1, 0, 0] * 4, False, "stay_over"),
        ([1, 0, 0] * 3 + [0, 0, 0], True, "stay_over"),
        ([1, 0, 0] * 3 + [0, 0, 0], False, None),  # may be a reward at the end
        ([1, 0, 0] + [0, 0, 0] * 3, True, None),
        ([1, 0, 1] * 4, True, None),
        ([0, 0, 1] * 4, True, None),  # the last row in the file, and not the last step
    ],
)
def test_the_end_of_episodes_is_found_by_content(flags: list[int], reward: bool, terminated: str | None) -> None:
    frame = stays(stay_over=flags)
    described = describe_table(frame if reward else frame.drop("reward"))
    assert described.proposed is not None
    assert described.proposed.terminated in (terminated, None if terminated else False)
    assert ("stay_over' is 1 on last rows" in " ".join(described.notes)) is (terminated is not None)


@pytest.mark.parametrize(
    ("name", "values", "propensity"),
    [
        ("clinician_probability", [0.2, 0.5, 1.0] * 4, True),
        ("logging_propens", [0.2, 0.5, 0.3] * 4, True),
        ("clinician_probability", [0.0, 0.5, 1.0] * 4, False),
        ("clinician_probability", [0.2, 0.5, 1.1] * 4, False),
        ("clinician_share", [0.2, 0.5, 1.0] * 4, False),
    ],
)
def test_a_propensity_is_found_by_content(name: str, values: list[float], propensity: bool) -> None:
    described = describe_table(stays(**{name: values}))
    assert described.proposed is not None
    assert (described.proposed.propensity == name) is propensity


def published(rows: int = 400) -> pl.DataFrame:
    """A table of hospital visits as they are published: question marks, numbers of persons, an outcome in words."""
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "encounter_id": np.arange(rows) + 1000, "patient_nbr": rng.integers(1, 150, rows) + 5000,
            "race": rng.choice(["A", "B", "?"], rows), "weight_kg": rng.choice(["?", "70", "80"], rows),
            "insulin": rng.choice(["No", "Up"], rows), "readmitted": rng.choice(["NO", "<30", ">30"], rows),
        }
    )  # fmt: skip


def test_an_empty_column_and_a_long_recording_are_said() -> None:
    frame = pl.DataFrame({
        "weight": pl.Series([None] * 6, dtype=pl.String),
        "timestamp": [f"2024-01-01 0{hour}:00:00" for hour in range(6)],
        "x": [1.5, 2.5, 3.5] * 2, "action": ["a", "b"] * 3, "reward": [1.0, 2.0] * 3,
    })  # fmt: skip
    notes = describe_table(frame).notes
    assert "'weight' has the name of a weight, but has no value" in notes
    assert any(note.endswith("add a column that names the part of each row, such as the day") for note in notes)
    drawn = describe_table(frame.with_columns(propensity=pl.Series([0.5, 0.4] * 3)))
    assert not any(note.endswith("such as the day") for note in drawn.notes), "a bandit needs no episodes"


def test_a_few_copied_rows_leave_the_step_and_are_named() -> None:
    rows = pl.DataFrame(
        {"patient": np.repeat(np.arange(50), 4), "visit": np.tile(np.arange(4), 50), "x": np.arange(200) / 7}
    ).with_columns(action=pl.Series(["a", "b"] * 100), reward=pl.col("x") * 2)
    described = describe_table(pl.concat([rows, rows[5:6]]))
    assert tomllib.loads(described.toml)["step"] == "visit"
    assert any(one.startswith("1 row repeats a step of their 'patient': remove copied rows") for one in described.notes)
    (error,) = described.report.errors
    assert (error.check, error.column, error.rows) == ("duplicate step", "visit", (201,))
    assert error.fix.startswith("remove copied rows, or set step= to a column that counts")
    many = describe_table(pl.concat([rows, rows[:5]]))
    assert "step" not in tomllib.loads(many.toml)
    assert any("'visit' is not used as step: 5 rows repeat a step" in one for one in many.notes)


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("patient,visit,action,reward\n")
    with pytest.raises(LogError, match="error: empty log\n  found: column names, but no rows\n"):
        describe_table(tmp_path / "a.csv")


def test_a_table_without_a_reward_says_what_a_better_policy_needs(tmp_path: Path) -> None:
    rows = pl.DataFrame({"patient": np.repeat(np.arange(50), 4), "x": np.arange(200) / 7})
    rows.with_columns(action=pl.Series(["a", "b"] * 100)).write_csv(tmp_path / "a.csv")
    text = describe_table(tmp_path / "a.csv").text()
    assert "for a better policy, set `reward` in columns.toml" in " ".join(text.split())


def test_numbers_of_columns_are_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("0,1,2\n3,4,5\n6,7,8\n")
    assert [one.name for one in describe_table(tmp_path / "a.csv").fields] == ["0", "1", "2"]


def test_lists_are_on_one_line_and_nested_events_are_said(tmp_path: Path) -> None:
    events = [[{"aid": 1, "ts": 5}, {"aid": 2, "ts": 6}], [{"aid": 3, "ts": 7}]]
    frame = pl.DataFrame(
        {"session": ["s", "t"], "events": events, "codes": [[1.0, 2.0], [3.0, 4.0]], "t": ["a\nb", "c"]}
    )
    frame.write_ndjson(tmp_path / "a.jsonl")
    described = describe_table(tmp_path / "a.jsonl")
    assert (
        "\ncodes                        list                 2 different  [1.0, 2.0], [3.0, 4.0]\n" in described.text()
    )
    assert tomllib.loads(described.toml)["explode"] == "events"
    frame.with_columns(more=pl.col("events")).write_ndjson(tmp_path / "b.jsonl")
    several = describe_table(tmp_path / "b.jsonl")
    assert "explode" not in tomllib.loads(several.toml)
    assert "events (lists of objects: `explode` in the mapping" in " ".join(several.text().split())
    assert all("\n" not in example for one in described.fields for example in one.examples)


@pytest.mark.parametrize(
    ("mapping", "fix"),
    [({"reward": "word", "action": "x"}, "give words a reward in `reward_values`"),
     ({"reward": "x", "action": "code"}, "if they are codes, some of them numbers, name it in `categorical`")],
)  # fmt: skip
def test_advice_for_words_among_numbers(mapping: dict[str, str], fix: str) -> None:
    frame = pl.DataFrame({"x": [0, 1] * 5, "word": ["good", "bad"] * 5, "code": ["1", "2a"] * 5})
    (error,) = [
        one for one in validate(frame, {"observation": "x", **mapping}).errors if one.check == "non-numeric text"
    ]
    assert fix in error.fix


@pytest.mark.parametrize(("source", "fix"), [("s3://bucket/a.parquet", "paths of s3: are not read"),
                                             ("nowhere.csv", "check the path")])  # fmt: skip
def test_files_that_are_elsewhere(source: str, fix: str) -> None:
    with pytest.raises(LogError, match=fix):
        describe_table(source)


def test_a_folder_without_tables_is_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(LogError, match="a folder without tables, and without a Minari data set"):
        read_log(tmp_path / "folder")


def test_several_choices_are_counted_for_each_of_them() -> None:
    action = np.array([[0, 2], [1, 1], [1, 0]])
    log = Log.from_arrays(observation=np.zeros((3, 1)), action=action, actions=[2, 3], reward=np.zeros(3))
    assert "actions: 0: [1, 2], 1: [1, 1, 1]" in inspect_log(log).text()


def test_numbers_of_cases_are_episodes_and_empty_cells_have_a_rule_to_uncomment() -> None:
    frame = pl.DataFrame({
        "Case No": [f"{row // 4}/24" for row in range(40)], "Lactate": [None, 2.5, 1.5, 3.5] * 10,
        "action": [0, 1] * 20, "reward": [0.0, 1.0] * 20,
    })  # fmt: skip
    described = describe_table(frame)
    assert tomllib.loads(described.toml)["episode"] == "Case No"
    rule = '# missing = { "Lactate" = "mean+flag" }'
    assert rule in described.toml.split("\n")
    proposed = tomllib.loads(described.toml.replace(rule, rule.removeprefix("# ")))
    assert read_log(frame, proposed).steps == 40
    assert validate(frame, tomllib.loads(described.toml)).errors


def test_sessions_of_users_are_interactions_whatever_their_items_are_called() -> None:
    places = np.random.default_rng(0).integers(0, 60, 300)
    columns = {"user": np.arange(300) // 12, "session": np.arange(300) // 4, "restaurant": places}
    frame = pl.DataFrame(columns | {"kind": ["browse", "accept"] * 150, "time": np.arange(300) * 60 + 1e9})
    described = describe_table(frame)
    roles = {"user": "user", "item": "restaurant", "time": "time", "session": "session", "event": "kind"}
    assert described.interaction_roles() == roles
    assert "'restaurant' is taken as the item" in described.text()
    assert not describe_table(frame.with_columns(cook=pl.col("restaurant"))).interactions  # which of the two?
    assert not describe_table(frame.drop("session", "kind")).interactions


def test_sessions_without_users_are_interactions_where_nothing_was_earned() -> None:
    frame = pl.DataFrame({
        "session": np.repeat(np.arange(20), 3), "aid": np.arange(60) % 11, "ts": 1.7e12 + np.arange(60) * 7_000,
        "type": ["clicks", "carts", "clicks"] * 20,
    })  # fmt: skip
    assert describe_table(frame).interactions == {"user": "session", "item": "aid", "time": "ts", "event": "type"}
    assert not describe_table(frame.drop("ts")).interactions
    assert not describe_table(frame.with_columns(click=pl.Series(np.arange(60) % 2))).interactions


def test_a_ward_s_table_is_proposed_as_it_is_read() -> None:
    """The probability p(given) names the action, n/a among numbers is empty, and empty outcomes have a reward."""
    generator = np.random.default_rng(0)
    given = generator.integers(0, 3, 400)
    frame = pl.DataFrame({
        "Case No": [f"{row // 4}/24" for row in range(400)], "CRP": ["n/a", "2.5", "1.5", "3.5"] * 100,
        "Given": np.array(["watch", "antibiotic", "fluid"])[generator.choice(3, 400, p=[0.5, 0.3, 0.2])],
        "Ward": np.array(["A", "B", "C"])[given], "Outcome": [None, None, None, "home"] * 100,
        "Closed": ["no", "no", "no", "yes"] * 100,
    })  # fmt: skip
    chances = {"watch": 0.5, "antibiotic": 0.3, "fluid": 0.2}
    frame = frame.with_columns(pl.col("Given").replace_strict(chances).alias("p(given)"))
    toml = describe_table(frame).toml
    proposed = tomllib.loads(toml)
    assert (proposed["propensity"], proposed["action"]) == ("p(given)", "Given")
    assert '# reward_values = { "home" = 0.0, "" = 0.0 }   # with your numbers' in toml.split("\n")
    assert '# missing = { "CRP" = "mean+flag" }' in toml.split("\n")
    whole = tomllib.loads("\n".join(line.removeprefix("# ") for line in toml.split("\n")))
    assert read_log(frame, whole).steps == 400
    numbers = frame.with_columns(reward=pl.Series([None, None, 1.0, None] * 100)).drop("Outcome")
    proposed = describe_table(numbers).toml.split("\n")
    assert "# missing_reward = 0.0   # if rows without a reward earned nothing" in proposed
    assert '# missing_reward = "unknown"   # if what they earned was not recorded' in proposed
    assert not any(line.startswith("# drop_rows_without") for line in proposed)


def pumps() -> pl.DataFrame:
    """Twelve days of 40 pumps, until some of them break; no name says what an episode is."""
    generator = np.random.default_rng(0)
    rows = []
    for pump in range(40):
        days = int(generator.integers(3, 13))
        rows += [
            {"pump": f"P{pump}", "date": f"2026-03-{day + 1:02d}", "kind": "gear" if pump % 2 else "screw",
             "heat": round(float(generator.normal()), 2), "action": int(generator.integers(2)),
             "profit_eur": 100, "broke": int(day == days - 1 and days < 7)}
            for day in range(days)
        ]  # fmt: skip
    return pl.DataFrame(rows)


@pytest.mark.parametrize("words", [["none"], ["NA", "none"], ["none", "NA", "n/a"]])
def test_words_for_nothing_alone_are_no_action(words: list[str]) -> None:
    frame = pl.DataFrame({"age": np.arange(60) % 7, "action": np.resize(words, 60), "reward": np.arange(60) % 5})
    described = describe_table(frame)
    assert "action" not in tomllib.loads(described.toml)
    assert any(note.startswith(f"not used: action (only {words[0]}") for note in described.notes)
    action = frame.with_columns(action=pl.Series(np.resize([*words, "high"], 60)))
    assert tomllib.loads(describe_table(action).toml)["action"] == "action"


@pytest.mark.parametrize("name", ["benefit", "net_benefit", "click", "purchase"])
def test_an_outcome_by_its_name_is_no_observation(name: str) -> None:
    frame = pl.DataFrame({"age": np.arange(60) % 7, "action": np.arange(60) % 3, name: np.arange(60) % 5 / 2})
    described = describe_table(frame)
    assert tomllib.loads(described.toml)["observation"] == ["age"]
    assert described.proposed is not None
    assert described.proposed.reward == name or f'# reward = "{name}"' in described.toml
    past = describe_table(frame.rename({name: f"last_{name}"}))
    assert f"last_{name}" in tomllib.loads(past.toml)["observation"]


def test_one_action_is_cloned_only() -> None:
    frame = pl.DataFrame({"age": np.arange(60) % 7, "action": ["wait"] * 60, "reward": np.arange(60) % 5})
    described = describe_table(frame)
    assert "tidelog train bc" in replace(described, named=("a.csv",)).text()
    two = describe_table(frame.with_columns(action=pl.Series(["wait", "go"] * 30)))
    assert "tidelog train iql" in replace(two, named=("a.csv",)).text()


@pytest.mark.parametrize("name", ["timeout", "done", "is_first", "episode_starts"])
def test_a_flag_of_ends_without_a_column_of_episodes_is_a_note(name: str) -> None:
    flags = [1, 0, 0, 0, 0] * 20 if name in ("is_first", "episode_starts") else [0, 0, 0, 0, 1] * 20
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"obs": rng.normal(size=100), "action": rng.normal(size=100), "reward": rng.normal(size=100)})
    described = describe_table(table.with_columns(pl.Series(name, flags)))
    assert any(f"although '{name}' says where episodes end or begin" in note for note in described.notes)


def campaign(rows: int = 200) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "rownames": np.arange(1, rows + 1), "recency": rng.integers(1, 12, rows),
            "segment": rng.choice(["mail A", "mail B", "none"], rows), "visit": rng.integers(0, 2, rows),
            "contact": rng.integers(1, 5, rows), "person": np.arange(rows) // 4,
        }
    )  # fmt: skip


def test_what_is_said_is_taken_and_the_rest_is_proposed_again() -> None:
    before = tomllib.loads(describe_table(campaign()).toml)
    assert "action" not in before
    described = describe_table(campaign(), {"action": "segment", "reward": "visit"})
    proposed = tomllib.loads(described.toml)
    assert {name: value for name, value in proposed.items() if name != "cluster"} == {
        "action": "segment", "reward": "visit", "terminated": True, "observation": ["recency", "contact"]
    }  # fmt: skip
    assert read_log(campaign(), proposed).spec.action.names == ("mail A", "mail B", "none")
    assert not described.interactions
    assert '# propensity = "shares"' in described.toml
    declared = describe_table(campaign(), {"action": "segment", "reward": "visit", "propensity": 1 / 3})
    assert "shares" not in declared.toml
    several = tomllib.loads(describe_table(campaign(), {"action": ["contact", "recency"], "episode": "person"}).toml)
    assert (several["action"], several["actions"], several["episode"]) == (["contact", "recency"], [5, 12], "person")
    assert "terminated" not in several
    said = {"observation": ["visit", "segment"], "action": "recency", "step": "contact", "propensity": 0.25}
    proposed = tomllib.loads(describe_table(campaign(), said).toml)
    assert {name: proposed[name] for name in said} == said
    assert proposed["categorical"] == ["segment"]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"action": "segmnt"}, "--action segmnt: there is no such column. fix: did you mean 'segment'"),
        (
            {"action": "segment", "reward": "segment"},
            "'segment' is named for --action and --reward|--reward and --action",
        ),
    ],
)
def test_what_is_said_must_fit_the_table(said: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        describe_table(campaign(), said)


@pytest.mark.parametrize("name", ["rownames", "X", "Unnamed: 0", "row_number", "number"])
def test_row_numbers_are_no_observation(name: str) -> None:
    frame = campaign().rename({"rownames": name})
    described = describe_table(frame, {"action": "segment"})
    assert name not in tomllib.loads(described.toml)["observation"]
    assert any(f"{name} (row numbers)" in note for note in described.notes)
    backwards = frame.with_columns(pl.lit(np.random.default_rng(0).permutation(200)).alias("number"))
    if name == "X":  # a number of its own in every row is an observation where it does not count the rows
        assert "number" in tomllib.loads(describe_table(backwards, {"action": "segment"}).toml)["observation"]


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64, pl.String])
def test_codes_from_1_to_4_are_four_actions(kind: Any) -> None:
    frame = campaign().with_columns(pl.col("contact").cast(kind))
    described = describe_table(frame, {"action": "contact", "reward": "visit"})
    proposed = tomllib.loads(described.toml)
    assert proposed["vocabularies"] == {"contact": ["1", "2", "3", "4"]}
    plain = {"observation": "recency", "action": "contact", "reward": "visit", "terminated": True}
    for roles in (plain, {name: value for name, value in proposed.items() if name != "observation"} | plain):
        log = read_log(frame, roles)
        assert log.spec.action == Discrete(4, ("1", "2", "3", "4"))
        np.testing.assert_array_equal(log.action, campaign()["contact"].to_numpy() - 1)
    assert read_log(frame, plain | {"actions": 5}).spec.action == Discrete(5)
    mask = frame.with_columns(pl.lit(1).alias(f"m{i}") for i in range(5))
    assert read_log(mask, plain | {"action_mask": ["m0", "m1", "m2", "m3", "m4"]}).spec.action == Discrete(5)
    assert read_log(mask, plain | {"action_mask": ["m0", "m1", "m2", "m3"]}).spec.action.n == 4


def test_empty_decisions_suggest_to_leave_their_rows_out() -> None:
    described = describe_table(campaign().with_columns(pl.col("segment").replace("none", "")), {"action": "segment"})
    assert '# drop_rows_without = ["segment"]   # if they are missing by chance' in described.toml
    proposed = tomllib.loads(described.toml.replace("# drop_rows", "drop_rows"))
    assert read_log(campaign(), proposed | {"na_values": ["none"]}).spec.action.names == ("mail A", "mail B")


def recordings() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "observation.state": rng.normal(size=(60, 3)).tolist(), "action": rng.normal(size=(60, 2)).tolist(),
            "frame_index": np.arange(60) % 20, "episode_index": np.arange(60) // 20, "index": np.arange(60),
            "tags": [["a"], ["b", "c"], []] * 20, "neighbours": [[1.0], [2.0, 3.0], [4.0]] * 20,
        }
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["lists", "arrays", "text", "nested text"])
def test_columns_of_lists_are_observations_and_actions(kind: str) -> None:
    frame, names = recordings(), ("observation.state", "action")
    if kind == "arrays":
        frame = frame.with_columns(pl.col("observation.state").list.to_array(3), pl.col("action").list.to_array(2))
    elif "text" in kind:
        brackets = ("[", "]") if kind == "nested text" else ("", "")
        frame = frame.with_columns(
            pl.Series(name, [f"{brackets[0]}{cell}{brackets[1]}" for cell in frame[name].to_list()]) for name in names
        )
    described = describe_table(frame)
    proposed = tomllib.loads(described.toml)
    assert {name: proposed[name] for name in ("episode", "step", "action", "observation")} == {
        "episode": "episode_index", "step": "frame_index", "action": "action", "observation": ["observation.state"]
    }  # fmt: skip
    assert any("neighbours (lists of different lengths, or of other values)" in note for note in described.notes)
    log = read_log(frame, proposed)
    assert log.action.shape == (60, 2)
    assert log.observation["numeric"].shape == (60, 3)
    assert "many actions" not in log.report.text()


def test_text_in_brackets_that_is_no_list_of_numbers_stays_text() -> None:
    table = {"x": ["[a]", "[b]"] * 30, "action": ["(up)", "(down)"] * 30, "reward": [0.0, 1.0] * 30}
    log = read_log(
        pl.DataFrame(table), {"observation": "x", "action": "action", "reward": "reward", "terminated": True}
    )
    assert log.spec.action == Discrete(2, ("(down)", "(up)"))
    lists = {"x": ["[1, 2]", "[3, 4]"] * 30, "action": ["[0, 1]", "[1, 0]"] * 30, "reward": [0.0, 1.0] * 30}
    roles = {"observation": "x", "action": "action", "reward": "reward", "terminated": True, "categorical": "action"}
    log = read_log(pl.DataFrame(lists), roles)
    assert log.spec.action == Discrete(2, ("[0, 1]", "[1, 0]"))
    assert log.observation["numeric"].shape[1] == 2
    coded = read_log(pl.DataFrame(lists), roles | {"categorical": ["action", "x"]})
    assert coded.spec.observation["categorical"].vocabularies == (("[1, 2]", "[3, 4]"),)  # type: ignore[union-attr]
    worded = read_log(pl.DataFrame(lists), roles | {"vocabularies": {"x": ["[3, 4]", "[1, 2]"]}})
    assert worded.spec.observation["categorical"].vocabularies == (("[3, 4]", "[1, 2]"),)  # type: ignore[union-attr]
    report = validate(pl.DataFrame(lists | {"x": ["[1, 2]"] * 59 + ["[1]"]}), roles)
    assert [(one.check, one.rows) for one in report.errors] == [("changing shapes", (60,))]


@pytest.mark.parametrize(("no", "yes"), [("no", "yes"), ("N", "Y"), ("false", "true"), ("0", "1")])
def test_decisions_and_outcomes_may_be_yes_and_no(tmp_path, no, yes):
    rng = np.random.default_rng(0)
    columns = {name: np.where(rng.random(60) < 0.5, yes, no) for name in ("smoker", "treated", "recovered")}
    pl.DataFrame({"age": rng.integers(20, 80, 60), **columns}).write_csv(tmp_path / "trial.csv")
    found = describe_table(tmp_path / "trial.csv", {"action": "treated", "reward": "recovered"})
    roles = tomllib.loads(found.toml)
    log = read_log(tmp_path / "trial.csv", Columns.from_mapping(roles))
    assert log.spec.action.n == 2
    assert (log.reward == (columns["recovered"] == yes)).all()
    worded = no in ("no", "N")
    values = ({no: 0.0, yes: 1.0}, None) if worded else (None, 2)
    assert (roles.get("reward_values"), roles.get("actions")) == values
    said = re.sub(r"\s+", " ", found.text())
    assert ("is read as a reward of 0 for 'no' and 1 for 'yes'" in said) == (no == "no")


def requests(rows: int = 400) -> pl.DataFrame:
    """A router's log: one model answers each request, and users come again."""
    random = np.random.default_rng(0)
    model = random.choice(3, rows, p=[0.5, 0.3, 0.2])
    return pl.DataFrame({
        "request_id": [f"req-{row:04d}" for row in range(rows)],
        "user": random.choice([f"u{one}" for one in range(40)], rows),
        "tokens": random.integers(1, 3_000, rows),
        "model": np.asarray(["small", "medium", "large"])[model],
        "model_prob": np.asarray([0.5, 0.3, 0.2])[model],
        "latency_ms": random.normal(300.0, 50.0, rows),
        "success": random.random(rows) < 0.6,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "observation"),
    [
        (["age", "height", "coupon", "spend_later", "reward"], ["age", "height"]),
        (
            ["age", "coupon", "height", "spend_later", "reward"],
            ["age", "height", "spend_later"],
        ),  # more of them follow it
        (["age", "coupon", "spend_later", "reward"], ["age", "spend_later"]),  # as many
        (["age", "coupon", "spend_later"], ["age"]),  # as many, and nothing else is a reward
        (["age", "height", "coupon", "last_visits", "reward"], ["age", "height", "last_visits"]),
    ],
)
def test_what_stands_after_the_action_of_a_table_is_no_observation(columns: list[str], observation: list[str]) -> None:
    random = np.random.default_rng(0)
    frame = pl.DataFrame({name: random.integers(0, 3 if name == "coupon" else 50, 300) for name in columns})
    described = describe_table(frame)
    assert tomllib.loads(described.toml)["observation"] == observation
    out = "spend_later" in columns and "spend_later" not in observation
    assert any(note.startswith("'spend_later': after the action in the table") for note in described.notes) == out
    assert ('# reward = "spend_later"' in described.toml) == (out and "reward" not in columns)


@pytest.mark.parametrize(
    ("name", "labels", "action"),
    [
        ("model_name", ["m1", "m2"], True),
        ("treatment_group", ["a", "b"], True),
        ("courier_assigned", ["near", "fast"], True),
        ("scheduled_partition", ["p1", "p2"], True),
        ("car_model", ["a", "b"], False),
        ("group", ["A", "B"], True),
        ("group", ["north", "B"], False),
        ("blood", ["A", "B"], False),
        ("treat", ["yes", "no"], True),
        ("segment", ["Mens E-Mail", "No E-Mail"], True),
        ("segment", ["north", "No E-Mail"], False),
        ("who", ["control", "letter"], True),
        ("who", ["new", "old"], False),
    ],
)
def test_a_choice_is_known_by_its_name_or_its_labels(name: str, labels: list[str], action: bool) -> None:
    frame = pl.DataFrame({"age": np.arange(60) % 7, name: np.tile(labels, 30), "reward": np.arange(60) % 5})
    assert (tomllib.loads(describe_table(frame).toml).get("action") == name) == action


@pytest.mark.parametrize(("lowest", "weighed"), [(-4, False), (0, True)])
def test_costs_that_are_below_0_have_their_sign_already(lowest: int, weighed: bool) -> None:
    cost = pl.Series([float(lowest + row % 5) if row % 3 else None for row in range(60)])
    frame = pl.DataFrame({"age": np.arange(60) % 7, "action": np.arange(60) % 2, "cost": cost})
    toml = describe_table(frame).toml
    assert ("# reward_weights = [-1.0]" in toml) == weighed
    assert '# missing_reward = "unknown"' in toml


def test_an_end_that_is_an_outcome_may_be_the_reward_too() -> None:
    frame = pl.DataFrame({
        "stay_id": np.repeat(np.arange(40), 3), "hours": np.tile(np.arange(3), 40), "pulse": np.arange(120) % 7,
        "dose": np.arange(120) % 2, "died": np.tile([0, 0, 1, 0, 0, 0], 20),
    })  # fmt: skip
    described = describe_table(frame)
    assert tomllib.loads(described.toml)["terminated"] == "died"
    assert '# reward = "died"' in described.toml
    assert "# reward_weights = [-1.0]" in described.toml
    text = described.toml.replace("# reward", "reward")
    log = read_log(frame, tomllib.loads(text))
    assert log.reward is not None
    assert np.asarray(log.reward).sum() == -20.0


# One table after another: what its mapping has (None: nothing), its comments, and what is said beside it.


class Case(NamedTuple):
    """A table, roles of its mapping, columns that are observed, or not, lines of the mapping, and words of the text."""

    frame: pl.DataFrame
    roles: Mapping[str, Any] = MappingProxyType({})
    seen: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()


RNG = np.random.default_rng(0)
ROWS = np.arange(300)
PLAIN = pl.DataFrame({"age": ROWS % 7, "action": ROWS % 2})
SHOP = pl.DataFrame({
    "product": RNG.choice(["tea", "salt"], 300), "stock": RNG.integers(0, 50, 300),
    "price": RNG.choice([2.5, 3.0, 3.5], 300), "units_sold": RNG.poisson(3, 300), "revenue": RNG.gamma(3, 3, 300),
})  # fmt: skip
TWICE = pl.col("request_id").replace("req-0001", "req-0000")
STAYS = pl.DataFrame({
    "patient": np.repeat(np.arange(100), 3), "hour4": ROWS % 3, "lactate": ROWS % 7 / 2, "action": ROWS % 2,
    "reward": 0.5,
})  # fmt: skip
DAYS = STAYS.drop("reward").with_columns(days=pl.Series((ROWS % 3 == 2) * (ROWS % 11)))
PAIRS = pl.DataFrame({name: [0.5, 1.5] * 150 for name in ("obs_a", "obs_b", "next_obs_a", "next_obs_b")}).with_columns(
    action=pl.Series(ROWS % 2), reward=pl.Series(1.0 * (ROWS % 2 == 0))
)
STEPS = pl.DataFrame({"step": [0, 0, 1, 2], "x": [1.5, 2.5, 3.5, 4.5], "action": ["a", "b"] * 2, "reward": [1.0] * 4})
CASES = {
    "costs": Case(PLAIN.with_columns(churned=pl.Series(ROWS % 5 == 0)),
                  lines=("# reward_weights = [-1.0]   # with your numbers, below 0 for costs",)),
    "many names of models": Case(pl.DataFrame({"age": ROWS % 7, "model_name": [f"m{one % 60}" for one in ROWS]}),
                                 {"action": None}),
    "a forecast": Case(
        pl.DataFrame({"rain": RNG.integers(0, 2, 300), "rain_probability": RNG.uniform(0.4, 1.0, 300),
                      "treatment": RNG.integers(0, 2, 300), "reward": RNG.random(300)}), {"action": "treatment"}),
    "between two actions": Case(
        pl.DataFrame({one: RNG.normal(size=100) for one in
                      ("height", "speed", "torque_0", "joint", "torque_1", "force", "reward")}),
        {"action": ["torque_0", "torque_1"], "observation": ["height", "speed", "joint"]}),
    "prices": Case(SHOP, {"action": "price", "observation": ["product", "stock"]}),
    "products of users": Case(SHOP.with_columns(user=RNG.integers(0, 20, 300)), {"action": "product"}),
    "requests": Case(
        requests(), {"reward": "success", "propensity": "model_prob", "terminated": True, "cluster": "user",
                     "action": "model", "observation": ["tokens"], "episode": None},
        said=("every row has its own 'request_id' and is an episode of one step; set `episode = \"user\"`",)),
    "requests without numbers": Case(requests().drop("request_id"), {"episode": "user"}),
    "events of items": Case(requests().rename({"model": "item", "model_prob": "item_prob"}), {"episode": "user"}),
    "a number that comes twice": Case(requests().with_columns(TWICE), {"episode": "user"}),
    "named episodes": Case(requests().rename({"user": "conversation_id", "request_id": "message_id"}),
                           {"episode": "conversation_id"}),
    "an action by its probability": Case(requests().with_columns(offer=pl.Series(np.arange(400) % 2)),
                                         {"action": "model"}),
    "an action by its name": Case(requests().drop("model_prob").with_columns(offer=pl.Series(np.arange(400) % 2)),
                                  {"action": "offer"}),
    "a label": Case(pl.DataFrame({**BASE, "a": [0, 1] * 10, "state": [3, 705] * 10}),
                    said=("'state' is read as a label: take it out of `categorical` if it is an amount",)),
    "unused columns": Case(
        stays(when=["2020-01-01"] * 12, nothing=[None] * 12).with_columns(later=pl.lit("2021-01-01")),
        said=("not used: ", "when (a time), nothing (has no value), later (a time)")),
    "a count of rows": Case(STAYS, {"step": "hour4", "observation": ["lactate"]}),
    "what remains": Case(STAYS.with_columns(hour4=3 - pl.col("hour4")), {"step": None}),
    "a row for each date": Case(
        pumps(), {"episode": "pump", "time": "date", "observation": ["kind", "heat"]},
        lines=('# terminated = "broke"', '# reward = "profit_eur"')),
    "a time for every row": Case(
        pumps().with_columns(date=pl.Series(np.arange(len(pumps())).astype("datetime64[ms]"))), {"episode": None}),
    "an alarm at one end": Case(  # which can be chance
        pumps().insert_column(0, pl.Series("alarm", np.append(np.zeros(len(pumps()) - 1, int), 1))),
        seen=("alarm",), unseen=("broke",)),
    "last rows": Case(recordings().with_columns(is_last=pl.Series(([0] * 19 + [1]) * 3)), {"truncated": "is_last"}),
    "lists of items": Case(recordings().rename({"observation.state": "items"}), unseen=("items",)),
    "a score": Case(pl.DataFrame({"age": ROWS % 7, "score": ROWS % 9, "action": ROWS % 3}),
                    said=("'score': an outcome by the name, or known before the decision? Take an outcome out of",)),
    "a score beside rewards": Case(PLAIN.with_columns(score=pl.Series(ROWS % 9), reward=pl.Series(ROWS % 5)),
                                   unsaid=("'score'",)),
    "an amount of last rows": Case(
        DAYS, {"observation": ["lactate"], "terminated": None}, lines=('# reward = "days"',),
        said=("'days' is 0 except on last rows of episodes: an outcome",), unsaid=('# terminated = "days"',)),
    "an amount of any rows": Case(DAYS.with_columns(days=pl.Series(ROWS % 11)).select(
        "patient", "hour4", "lactate", "days", "action"), {"observation": ["lactate", "days"]}),
    "next observations": Case(PAIRS, {"observation": ["obs_a", "obs_b"],
                                      "next_observation": ["next_obs_a", "next_obs_b"]}),
    "a next observation": Case(PAIRS.drop("next_obs_b"), {"next_observation": None},
                               said=("next observations are not used: obs_b has no next column",)),
    "what is not clear": Case(
        pl.DataFrame({**BASE, "a": [0, 1] * 10, "dones": [0, 1] * 10, "logp": [-0.5] * 20, "x": [None, 1.0] * 10}),
        said=("'dones' often also marks time limits", "log-probability", "10 in 'x'",
              "one of 2 actions, codes from 0; logged are 0 to 1")),
    "a number of a person": Case(  # of several patients each; words change within encounters only in one column
        published().with_columns(encounter_id=np.arange(400) // 10),
        {"episode": "encounter_id", "observation": ["race", "weight_kg"], "action": "insulin"},
        said=("patient_nbr (persons: name it in `cluster`)",)),
    "steps of nothing": Case(
        STEPS, {"step": None}, said=("'step' is not used as step: no column says which rows form an episode",)),
    "a step twice": Case(STEPS.with_columns(episode=pl.Series([1, 1, 1, 2])), {"step": None},
                         said=("'step' is not used as step: 1 row repeats a step of their 'episode'",)),
    "a step": Case(STEPS.with_columns(episode=pl.Series([1, 2, 2, 2])), {"step": "step"}),
    "the demo": Case(
        pl.DataFrame(TREATMENT),
        {"episode": "patient", "step": "visit", "observation": ["severity", "hour", "kidneys"], "action": "treatment",
         "reward": "recovered", "terminated": "ended", "propensity": "propensity"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_proposed_as_it_is_meant(name: str) -> None:
    check_proposal(CASES[name])


def check_proposal(case: Case) -> None:
    described = describe_table(case.frame)
    mapping, text = tomllib.loads(described.toml), " ".join(described.text().split())
    assert {role: mapping.get(role) for role in case.roles} == case.roles
    assert {*case.seen} <= {*mapping.get("observation", [])}
    assert not {*case.unseen} & {*mapping.get("observation", [])}
    assert {*case.lines} <= {*described.toml.split("\n")}
    assert [word for word in case.said if word not in text] == []
    assert [word for word in case.unsaid if word in text] == []


def test_a_log_in_numbers() -> None:
    inspection = inspect_log(read_log(visits(), mapping()))
    assert json.loads(json.dumps(inspection.to_json()))["statistics"] == inspection.data["statistics"]
    text = inspection.text()
    for said in ("12 episodes, 39 steps", "6 terminated, 6 truncated", "propensities: min 0.1", "ward: 3 categories"):
        assert said in text
    assert max(map(len, text.split("\n"))) <= 140
