"""Docstrings: every public name that a user calls has an example there, and the examples print what they show."""

import doctest
import importlib
import inspect
import os
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.first_hour.blocks import agrees
from tests.test_site import DOCS, needs_site, reference, shown
from tidelog.algorithms import short_form

BEFORE = "import numpy as np\nimport polars as pl\nimport tidelog as tl\n"  # on the page, once for all examples
RESULT = "a result; what returns it has the example"
CONTRACT = "a contract; docs/environments.md has a class that meets it"
KEYWORDS = "names of keywords; the verb that takes them has the example"
TRACKER = "needs a tracker; docs/tools.md shows it against the real package"
NO_EXAMPLE = {
    "tidelog.Verdict": RESULT,
    "tidelog.ope.verdict.Verdicts": RESULT,
    "tidelog.LoggingPlan": RESULT,
    "tidelog.ope.plan.PlannedLogging": RESULT,
    "tidelog.Sweep": RESULT,
    "tidelog.envs.Outcome": RESULT,
    "tidelog.envs.BatchObservation": RESULT,
    "tidelog.envs.Episodes": RESULT,
    "tidelog.envs.functional.CopyStep": RESULT,
    "tidelog.runtime.NumpyPolicy": RESULT,
    "tidelog.runtime.Recommender": RESULT,
    "tidelog.runtime.RecurrentState": RESULT,
    "tidelog.envs.Environment": CONTRACT,
    "tidelog.envs.Resumable": CONTRACT,
    "tidelog.envs.functional.Functional": CONTRACT,
    "tidelog.envs.TabularEnvironment": "`make` of a `Tabular` returns it",
    "tidelog.envs.View": "a field of `Tabular`",
    "tidelog.types.Vector": "a field of `Spec`",
    "tidelog.types.Codes": "a field of `Spec`",
    "tidelog.types.Image": "a field of `Spec`",
    "tidelog.envs.functional.begin": "in the example of `advance`",
    "tidelog.envs.functional.look": "`advance` returns the same",
    "tidelog.training.processes.connect_processes": "needs several processes; docs/scale.md shows it",
    "tidelog.algorithms.short_form.gradient_steps": "called in an `update`",
    "tidelog.algorithms.short_form.follow_targets": "called in an `update`",
    "tidelog.testing.check_algorithm": "takes half a minute; docs/write-your-own.md runs it",
    "tidelog.sinks.MLflow": TRACKER,
    "tidelog.sinks.TensorBoard": TRACKER,
    "tidelog.sinks.WandB": TRACKER,
    "tidelog.training.run.publish": TRACKER,
    **{f"tidelog.training.options.{verb}Options": KEYWORDS for verb in ("Fit", "Learn", "Finetune", "Sweep")},
}
SLOW = {  # seconds each: a training of many programs, an export, a verdict
    *("tidelog." + name for name in ("BCQ", "CQL", "DiscreteBCQ", "DiscreteCQL", "FQL", "IQL", "OffPolicyPPG")),
    *("tidelog." + name for name in ("PPG", "PPO", "ReBRAC", "RecommenderBCQ", "TD3BC")),
    *("tidelog." + name for name in ("estimate", "export", "finetune", "fit", "judge", "learn", "plan", "sweep")),
    *("tidelog." + name for name in ("refit", "algorithm", "rollout", "runtime.load", "suggest", "simple_rules")),
    *("tidelog." + name for name in ("Verdict.explain", "Histories")),
    "tidelog.envs.functional.advance",
    "tidelog.recommend.evaluate.compare",
}


def public(name: str):
    """What a name of the reference is; an attribute of a package comes before a module of the same name."""
    thing, so_far = tl, "tidelog"
    for part in name.split(".")[1:]:
        so_far += f".{part}"
        if not hasattr(thing, part):
            importlib.import_module(so_far)
        thing = getattr(thing, part)
    return thing


def examples(name: str) -> list[doctest.Example]:
    """The statements of a name's example; [] where it has none."""
    _, _, example = (inspect.getdoc(public(name)) or "").partition("\nExample:\n")
    return doctest.DocTestParser().get_examples(example)


def calls(name: str) -> bool:
    """Whether an example is due: every name but a module, and of the errors those that have one."""
    thing = public(name)
    if isinstance(thing, type) and issubclass(thing, Exception):
        return bool(examples(name))
    return not inspect.ismodule(thing)


CALLED = sorted(name for name in reference() if calls(name))
METHODS = [  # those that have an example
    f"{name}.{method}"
    for name in CALLED
    if isinstance(public(name), type)
    for method in vars(public(name))
    if not method.startswith("_") and examples(f"{name}.{method}")
]
SHOWN = [name for name in CALLED if name not in NO_EXAMPLE] + METHODS


def test_every_public_name_that_is_called_has_an_example_or_a_reason() -> None:
    assert [name for name in SHOWN if not any(one.want for one in examples(name))] == []
    assert [name for name in NO_EXAMPLE if name not in CALLED or examples(name)] == []
    assert len(SHOWN) > 60
    assert set(SHOWN) > SLOW
    assert BEFORE in (DOCS / "reference/index.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made() -> dict[str, object]:
    """Logs that several examples begin with, by the statement that makes them: nothing changes a log."""
    return {}


@pytest.fixture
def algorithms():
    """Algorithms that an example registers are forgotten after it."""
    before = dict(short_form.ALGORITHMS)
    yield
    for name in short_form.ALGORITHMS.keys() - before:
        del short_form.ALGORITHMS[name]


class Checker(doctest.OutputChecker):
    """Numbers to 2%, any white space, and any text for `...`, as in the blocks of pages."""

    def check_output(self, want: str, got: str, flags: int) -> bool:
        return agrees(want, got) and bool(want.strip()) == bool(got.strip())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if name in SLOW else []) for name in SHOWN]
)
def test_the_example_prints_what_it_shows(
    name: str, made: dict[str, object], algorithms: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    statements, names = examples(name), {"tl": tl, "np": np, "pl": pl}
    if statements[0].source in made:
        names["log"] = made[statements.pop(0).source]
    elif re.match(r"log = tl\.collect\(", statements[0].source):
        exec(statements[0].source, names)
        made[statements[0].source] = names["log"]
        del statements[0]
    test = doctest.DocTest(statements, names, name, None, None, None)
    runner = doctest.DocTestRunner(checker=Checker(), optionflags=doctest.REPORT_NDIFF, verbose=False)
    said: list[str] = []
    failed, tried = runner.run(test, out=said.append, clear_globs=False)
    assert tried
    assert not failed, "".join(said)
    assert os.getcwd() == str(tmp_path)


@needs_site
@pytest.mark.full
def test_examples_of_docstrings_are_on_the_pages_of_the_reference() -> None:
    for source in sorted((DOCS / "reference").glob("*.md")):
        names = re.findall(r"^\.\. auto(?:function|class|exception):: (\S+)$", source.read_text(encoding="utf-8"), re.M)
        statements = sum(len(examples(name)) for name in SHOWN if {name, name.rpartition(".")[0]} & {*names})
        assert shown(f"reference/{source.stem}.html").count(">>> ") == statements, source.name
