"""Single refusals and rare branches of policies, their tables, exports and play."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tests.runtime.cases import policy
from tidelog import Columns, ConfigError, Log, SpecError, load_policy
from tidelog.errors import CheckpointError, ExportError
from tidelog.policies import batch_inference, export
from tidelog.policies.batch_inference import act_on_known, act_on_table
from tidelog.policies.export import LoggedObservations
from tidelog.policies.policy import fill
from tidelog.runtime.policy import replay
from tidelog.types import Discrete, Image, Spec

ROWS = pl.DataFrame({"age": [1.0], "dose": [1.0], "pressure": [1.0], "ward": ["a"], "sex": ["f"]})
PICTURES = Spec({"scan": Image(4, 4, 1)}, Discrete(2))


REFUSED = {
    "a recurrent policy": (
        ConfigError,
        lambda: act_on_known(policy("iql, memory"), ROWS),
        "a recurrent policy needs every row of an episode. fix: drop --skip-unknown",
    ),
    "pictures": (
        SpecError,
        lambda: batch_inference._leaves(ROWS, PICTURES),
        "this policy reads pictures, and tables hold none. fix: pass an .npz file",
    ),
    "another log": (
        SpecError,
        lambda: LoggedObservations.of(
            Log.from_arrays(observation=np.zeros((3, 2)), action=[0, 1, 0], reward=None), policy("iql, choice")
        ),
        "this log's observations differ from the policy's. fix: pass the policy's own log",
    ),
    "a parity record": (
        ExportError,
        lambda: export.bound_of(None, {"parity": {"bound": {"difference": "small", "apart": 0.1}}}),
        "the artefact's parity record is invalid: ValueError(",
    ),
    "a parity record without a bound": (
        ExportError,
        lambda: export.bound_of(None, {"parity": {}}),
        "the artefact's parity record is invalid: KeyError('bound'). fix: export the policy again",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    error, call, words = REFUSED[name]
    with pytest.raises(error, match=re.escape(words)):
        call()


def test_tables_whose_columns_differ_or_lack_the_episode_are_refused(tmp_path):
    for name, column in (("one.parquet", pl.lit(1.0)), ("two.parquet", pl.lit("old"))):
        ROWS.with_columns(age=column).write_parquet(tmp_path / name)
    with pytest.raises(SpecError, match=r"expected the same column in every file\. fix: export the files alike"):
        act_on_table(policy("iql, choice"), [str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")])
    mapping = Columns(observation=["age"], action="a", reward=None, episode="patient", step="visit")
    frame = ROWS.with_columns(patinet=1, visit=1)
    with pytest.raises(SpecError, match=r"the table has no column 'patient': did you mean 'patinet'\?"):
        batch_inference._order(frame, mapping, "the policy is recurrent")


def test_without_the_extra_an_export_to_onnx_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(ExportError, match=r"ONNX export requires an extra \(.*\)\. fix: pip install 'jax2onnx"):
        export._tools()


def test_a_jax_that_the_extra_does_not_know_is_named(monkeypatch):
    source = "def to_onnx(*_, **__): raise AttributeError('no attribute ClosedJaxpr')"
    space = {}
    exec(compile(source, "/site-packages/jax2onnx/jit.py", "exec"), space)
    to_onnx = space["to_onnx"]
    monkeypatch.setattr(export.metadata, "version", lambda name: "0.17")
    monkeypatch.setattr(export, "_tools", lambda: (to_onnx, None))
    with pytest.raises(ExportError, match=r"cannot trace a program of jax .*ClosedJaxpr.* fix: pip install .*'jax<0"):
        export.onnx_file(policy("iql, choice"))


def test_an_array_of_another_shape_is_refused_and_what_is_no_array_stays():
    template = {"activation": abs, "weight": np.ones(2, np.float32)}
    assert fill(template, {"['weight']": np.zeros(2, np.float32)}, "file")["activation"] is abs
    with pytest.raises(CheckpointError, match=r"file: \['weight'\] is float32\[3\]: expected float32\[2\]"):
        fill(template, {"['weight']": np.zeros(3, np.float32)}, "file")


def test_a_configuration_that_memory_cannot_hold_is_refused(tmp_path, monkeypatch):
    path = policy("iql, choice").save(tmp_path / "policy")

    def init(self, spec, key, updates):
        raise MemoryError

    monkeypatch.setattr(type(policy("iql, choice").algorithm), "init", init)
    with pytest.raises(
        CheckpointError, match=r"a configuration of larger networks than its weights\. fix: save the pol"
    ):
        load_policy(path)


def test_what_one_step_cannot_answer_no_episode_can():
    carried = SimpleNamespace(carry=0)
    carried.of = lambda rows: carried
    whom = SimpleNamespace(initial_state=lambda count: carried, is_recurrent=True)
    leaves = {"x": np.zeros((5, 2))}
    assert replay(whom, leaves, np.asarray([0, 3, 5]), None, lambda *args: None) is None
