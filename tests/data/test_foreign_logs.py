"""Small files in the shapes of logs from elsewhere: what inspect proposes for them, and how they are read."""

import gzip
import json
import tomllib

import numpy as np
import polars as pl
import pytest

from tidelog import Columns, ConfigError, LogError, read_log
from tidelog.data import formats as file_bytes
from tidelog.data.inspect import describe_table
from tidelog.data.read import is_table, one_table, validate

ROWS = 600
generator = np.random.default_rng(3)
CHOSEN = generator.choice(3, ROWS, p=[0.5, 0.3, 0.2])
PROBABLE = np.asarray([0.5, 0.3, 0.2])[CHOSEN]


def proposed(source):
    return tomllib.loads(describe_table(source).toml)


def hints(source):
    return [line for line in describe_table(source).toml.split("\n") if line.startswith("#")]


def router(**more):
    """Requests, each sent to one of three models: latency and cost follow, seconds end in `_s`."""
    return pl.DataFrame(
        {
            "request": [f"req-{row}" for row in range(ROWS)],
            "task": np.tile(["code", "chat", "code", "translate"], ROWS // 4),
            "tokens": np.arange(ROWS) % 97,
            "model": np.asarray(["large", "small", "local"])[CHOSEN],
            "routing_probability": PROBABLE,
            "cost_usd": 0.01 * CHOSEN,
            "latency_s": 0.5 + 0.1 * (np.arange(ROWS) % 7),
            "feedback": np.tile(["good", "bad"], ROWS // 2),
            **more,
        }
    )


def test_outcomes_of_the_past_are_observations():
    frame = router(action=CHOSEN, last_cost=np.arange(ROWS) % 5, prior_feedback=np.tile(["good", "bad"], ROWS // 2))
    assert proposed(frame)["observation"] == ["task", "tokens", "model", "last_cost", "prior_feedback"]


def test_a_coupon_is_an_action_and_its_redemption_an_outcome():
    frame = router().select("task", "tokens", coupon="model", profit="cost_usd")
    frame = frame.with_columns(redeemed=pl.Series(np.tile(["yes", "no"], ROWS // 2)))
    found = proposed(frame)
    assert (found["action"], found["reward"], found["observation"]) == ("coupon", "profit", ["task", "tokens"])


@pytest.mark.parametrize(
    ("names", "observation"),
    [(["s_0", "s_1", "age"], ["s_0", "s_1"]), (["x1", "x2", "age"], ["x1", "x2"]), (["s", "age"], ["s"]),
     (["duration_s", "age"], ["duration_s", "age"]), (["size_x", "age"], ["size_x", "age"])],
)  # fmt: skip
def test_letters_name_observations_only_alone_or_with_a_number(names, observation):
    frame = pl.DataFrame({name: np.arange(20) / 4 for name in names} | {"action": [0, 1] * 10})
    assert proposed(frame)["observation"] == observation


LOCAL = "Zeit;Wert;Kosten;Code;a\n03.01.2025;-1,5;1.234,50;E11.9;low\n14.01.2025;2;2,00;250.83;high\n"
LOCAL_MAPPING = {"observation": ["Wert", "Kosten", "Code"], "categorical": "Code", "action": "a", "terminated": True}


def test_a_decimal_comma_is_proposed_and_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(LOCAL)
    found = proposed(path)
    assert found["decimal"] == ","
    log = read_log(path, LOCAL_MAPPING | {"decimal": ",", "time": "Zeit", "date_format": "%d.%m.%Y"})
    assert log.observation["numeric"].tolist() == [[-1.5, 1234.5], [2.0, 2.0]]
    assert log.spec.observation["categorical"].vocabularies == (("250.83", "E11.9"),)
    report = validate(path, LOCAL_MAPPING)
    assert {one.check for one in report.errors} <= {"non-numeric text", "changing shapes"}
    assert report.errors


@pytest.mark.parametrize(
    ("name", "text"),
    [("commas.csv", 'x,mask,a\n1,"0,3",low\n2,"0,4",high\n'), ("flags.csv", "x;mask;a\n1;1,0;low\n2;0,1;high\n"),
     ("lists.csv", "x;items;a\n1;6,1,2;low\n2;6,7,8;high\n")],
)  # fmt: skip
def test_other_commas_are_no_fractions(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    assert "decimal" not in proposed(tmp_path / name)


def test_settings_that_a_file_cannot_have_are_named(tmp_path):
    pl.DataFrame({"x": [1.0]}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("x,a\n1,2\n")
    with pytest.raises(LogError, match="drop decimal from the mapping"):
        one_table(tmp_path / "a.parquet", form=Columns(observation="x", action="a", reward=None, decimal=",").text_form)
    with pytest.raises(ConfigError, match="decimal = ';'"):
        Columns(observation="x", action="a", reward=None, decimal=";")


RECORDS = [{"user": 1 + row // 2, "t": row % 2, "seen": {"age": 20 + row}, "action": row % 3, "reward": 0.5 * row}
           for row in range(12)]  # fmt: skip
DOCUMENT_MAPPING = {"episode": "user", "step": "t", "observation": "seen.age", "action": "action", "reward": "reward"}


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_one_document_is_a_table(indent, name, tmp_path):
    path, text = tmp_path / name, json.dumps(RECORDS, indent=indent).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    log = read_log(path, DOCUMENT_MAPPING)
    assert is_table(path)
    assert (log.steps, len(log.episode_ids)) == (12, 6)
    assert log.reward.tolist() == [row["reward"] for row in RECORDS]
    described = describe_table(path)
    assert described.rows == 12
    assert described.proposed.action == "action"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"events": [{"a": 1}], "users": [{"b": 1}]}', "one dict"),
        ("[1, 2]", "a list without objects"),
        ('[{"a": 1}, {"a": 2}', "not one JSON value"),
        ('[{"a": 1, "a": 2}]', "not one JSON value"),
        ('[{"a": 1}, 2]', "objects that cannot be read: int instead of an object"),
        ('[{"a.b": 1, "a": {"b": 2}}]', "the same name twice"),
        ("[{}]", "objects without keys"),
    ],
)
def test_documents_that_are_no_table_are_refused(text, words, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(LogError, match=words):
        read_log(tmp_path / "a.json", DOCUMENT_MAPPING)


def test_a_mapping_beside_tables_is_no_table(tmp_path):
    pl.DataFrame({"o": [0.5, 1.5], "a": [0, 1], "r": [0.0, 1.0]}).write_csv(tmp_path / "a.csv")
    (tmp_path / "columns.json").write_text(json.dumps({"observation": "o", "action": "a", "reward": "r"}))
    log = read_log(tmp_path, tmp_path / "columns.json")
    assert log.steps == 2
    assert "columns.json" in log.report.text()


def test_a_document_of_little_text_does_not_take_the_memory(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps(RECORDS))
    monkeypatch.setattr(file_bytes, "shortage", lambda size: "too large" if size > 500 else None)
    with pytest.raises(LogError, match="too large"):
        read_log(tmp_path / "a.json", DOCUMENT_MAPPING)


def test_empty_text_is_counted_and_its_rule_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('region,action,reward\n"",0,1\nnorth,1,0\nsouth,0,1\n"",1,0\n')
    described = describe_table(path)
    assert described.fields[0].empty == 2
    assert any("2 in 'region'" in note for note in described.notes)
    (error,) = [one for one in described.report.errors if one.check == "missing value"]
    assert error.fix.startswith('set missing = { "')
