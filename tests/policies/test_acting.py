"""One declared way of acting: what declares it, what obeys it, and what warns of another one."""

import json

import numpy as np
import polars as pl
import pytest

from tests.ope.cases import best_treatments, mostly, treated
from tests.training.runs import bc, begin, finish
from tidelog import ConfigError, judge, load_policy, load_run, rollout, runtime
from tidelog.errors import CheckpointError
from tidelog.policies.batch_inference import act_on_table
from tidelog.policies.policy import FILE, remember
from tidelog.runtime.artefact import SavedPolicy, write
from tidelog.runtime.way_of_acting import ActingWarning, in_way

VERDICT = {
    "decision": "better", "acting": "sample", "date": "2026-11-23", "caveat": "", "difference": 0.1, "low": 0.05,
    "high": 0.15, "level": 0.95, "episodes": 400,
    "advice": "Use it: it is better than the logged decisions if it samples its actions.",
}  # fmt: skip


@pytest.fixture
def policy(trained):
    return trained.with_acting(None)


@pytest.fixture
def seen(log):
    """One patient, two thousand times."""
    return {name: np.repeat(leaf[:1], 2000, axis=0) for name, leaf in log.transitions.observation.items()}


@pytest.fixture(params=["jax", "numpy"])
def reader(request, policy, tmp_path):
    """The policy, in memory and as its saved form on NumPy; both undeclared."""
    return policy if request.param == "jax" else runtime.load(policy.save(tmp_path / "policy"))


def test_an_undeclared_policy_takes_its_most_likely_action_and_may_be_sampled(reader, seen):
    assert reader.acting is None
    likely = reader.probabilities(seen)[0].argmax()
    assert (reader(seen).codes == likely).all()
    assert (reader.mode(seen).codes == likely).all()
    assert len(set(reader.sample(seen).tolist())) > 1


def test_a_policy_that_samples_draws_anew_at_every_call_with_its_probabilities(reader, seen):
    sampled = reader.with_acting("sample")
    one, two = sampled(seen), sampled(seen)
    assert (one != two).any()
    shares = np.bincount(np.concatenate([one.codes, two.codes]), minlength=len(reader.probabilities(seen)[0])) / 4000
    wanted = reader.probabilities(seen)[0]
    # five standard errors of 4,000 draws: a right sampler fails for fewer than 3 in 100,000 seeds (8 actions at most)
    assert (np.abs(shares - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / 4000) + 1e-6).all()
    assert reader.acting is None, "the policy itself stays as it was"


def test_the_other_way_warns(reader, seen):
    with pytest.warns(ActingWarning, match="samples its actions"):
        reader.with_acting("sample").mode(seen)
    with pytest.warns(ActingWarning, match="always takes its most likely action"):
        reader.with_acting("mode").sample(seen)
    with pytest.warns(ActingWarning):
        reader.with_acting("mode").sample_with_propensity(seen)
    with pytest.warns(ActingWarning):
        in_way(reader.with_acting("mode"), "sample")
    assert in_way(reader.with_acting("sample"), None).acting == "sample"
    assert in_way(reader, None, otherwise="sample").acting == "sample"


def test_a_verdict_holds_for_one_way_only(policy):
    policy.declare("sample", VERDICT)
    assert policy.with_acting("sample").verdict == VERDICT
    assert policy.with_acting("mode").verdict is None
    with pytest.raises(ConfigError, match="the verdict is on a policy with acting = 'sample'"):
        policy.declare("mode", VERDICT)
    with pytest.raises(ConfigError, match="expected 'mode', 'sample' or None"):
        policy.declare("guess")


def test_judging_declares_what_it_judged(policy):
    log = treated(mostly(best_treatments(), 0.5), 60)
    judged = finish(begin(bc(), log)).policy()
    verdict = judge(judged, log, sample=True, model="tabular", ledger=False)
    assert judged.acting == "sample"
    assert judged.verdict == verdict.summary
    assert judged.verdict["decision"] == verdict.decision
    assert judged.verdict["caveat"] == "earlier verdicts on these episodes were not counted"
    again = judge(judged, log, model="tabular", ledger=False)  # in the declared way
    assert again.context["sample"] is True
    other = judge({"one": judged, "two": judged.with_acting("mode")}, log, model="tabular", ledger=False)
    assert [one.context["sample"] for one in other] == [True, False], "each policy in its own way"
    assert judge(judged, log, sample=False, model="tabular", ledger=False).context["sample"] is False
    assert judged.acting == "mode"


def test_the_declaration_travels_with_every_saved_form(policy, tmp_path):
    policy.declare("sample", VERDICT)
    for path in (policy.save(tmp_path / "folder"), policy.save(tmp_path / "file.zip")):
        for reader in (load_policy(path), runtime.load(path)):
            assert reader.acting == "sample"
            assert reader.verdict == VERDICT


@pytest.mark.parametrize(
    "entry",
    [
        {"acting": "guess"},
        {"acting": "mode", "verdict": VERDICT},
        {"acting": "sample", "verdict": {**VERDICT, "decision": "better\x1b[2J"}},
        {"acting": "sample", "verdict": {**VERDICT, "low": "0"}},
        {"acting": "sample", "verdict": {**VERDICT, "episodes": None}},
        {"acting": "sample", "verdict": {**VERDICT, "more": 1}},
        {"acting": "sample", "verdict": "better"},
        {"acting": ["sample"]},
    ],
    ids=lambda entry: str(entry)[:40],
)
def test_a_damaged_declaration_is_refused(policy, tmp_path, entry):
    saved = SavedPolicy(policy.save(tmp_path / "new"))
    kept = {name: value for name, value in saved.manifest.items() if name not in ("kind", "schema", "files", "sha256")}
    write(tmp_path / "bad", {"weights.safetensors": saved.read("weights.safetensors")}, {**kept, **entry})
    for read in (load_policy, runtime.load):
        with pytest.raises(CheckpointError, match=r"acting|verdict"):
            read(tmp_path / "bad")


def test_an_environment_is_played_in_the_declared_way(policy):
    sampled = policy.with_acting("sample")
    wanted = rollout(policy, "treatment", 20, seed=1, sample=True)
    np.testing.assert_array_equal(rollout(sampled, "treatment", 20, seed=1), wanted)
    assert (rollout(policy, "treatment", 20, seed=1) != wanted).any()
    with pytest.warns(ActingWarning):
        rollout(sampled, "treatment", 2, sample=False)


def test_a_table_is_acted_on_in_the_declared_way(policy, seen, log, tmp_path):
    words = np.asarray(log.spec.observation["categorical"].vocabularies[0])
    numeric = {name: seen["numeric"][:, i] for i, name in enumerate(log.spec.observation["numeric"].names)}
    pl.DataFrame({"kidneys": words[seen["categorical"][:, 0]], **numeric}).write_csv(tmp_path / "rows.csv")
    chances = dict(zip(log.spec.action.names, policy.probabilities(seen)[0].tolist(), strict=True))
    acted = act_on_table(policy.with_acting("sample"), tmp_path / "rows.csv", seed=5)
    assert len(set(acted["action"])) > 1
    wanted = [chances[action] for action in acted["action"]]
    np.testing.assert_allclose(acted["propensity"].to_numpy(), wanted, rtol=1e-5)
    assert act_on_table(policy.with_acting("sample"), tmp_path / "rows.csv", seed=5).equals(acted)
    assert not act_on_table(policy.with_acting("sample"), tmp_path / "rows.csv").equals(acted)
    assert "propensity" not in act_on_table(policy, tmp_path / "rows.csv").columns


def test_a_run_folder_remembers_the_declaration_of_these_weights(log, tmp_path):
    run = begin(bc(), log, tmp_path / "run", eval_every=10)
    next(run.stream())
    judged = run.policy()
    judged.declare("sample", VERDICT)
    remember(tmp_path / "run", judged)
    assert run.policy().verdict == VERDICT
    assert load_run(tmp_path / "run", log).policy().acting == "sample"
    assert finish(load_run(tmp_path / "run", log)).policy().acting is None, "other weights were not judged"
    (tmp_path / "run" / FILE).write_text(json.dumps([1]))
    with pytest.raises(CheckpointError, match="fix: remove it and judge the run again"):
        load_run(tmp_path / "run", log).policy()
