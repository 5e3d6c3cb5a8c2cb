"""What a prompt or a notebook prints: one short paragraph, without arrays."""

import re

from tests.ope.cases import best_treatments, mostly, treated
from tests.training.runs import bc, begin, finish
from tidelog import BC, IQL, judge

MOST = 1500  # characters


def test_an_algorithm_is_printed_as_it_was_written():
    assert repr(IQL()) == "IQL()"
    assert repr(IQL(temperature=10.0, hidden=(8, 8))) == "IQL(temperature=10.0, hidden=(8, 8))"
    assert eval(repr(BC(learning_rate=0.5)), {"BC": BC}) == BC(learning_rate=0.5)


def test_a_run_and_its_policy_are_one_sentence_each(log, tmp_path):
    run = finish(begin(bc(), log, tmp_path / "run", seeds=[0, 1]))
    assert repr(run) == f"Run of bc, 2 members (2 seeds), 42 of 42 updates, in {tmp_path / 'run'}"
    policy = run.policy()
    assert repr(policy).startswith("Policy of BC(")
    assert "numeric Vector, categorical Codes -> 6 actions (" in repr(policy)
    assert repr(policy).endswith("it always takes its most likely action; no verdict: nobody has judged this policy in "
                                 "this way. fix: tidelog judge")  # fmt: skip


def test_a_verdict_is_its_paragraph():
    log = treated(mostly(best_treatments(), 0.5), 60)
    policies = {name: finish(begin(bc(learning_rate=rate), log)).policy() for name, rate in (("a", 0.1), ("b", 0.2))}
    verdicts = judge(policies, log, sample=True, model="tabular", ledger=False)
    one = verdicts["a"]
    assert repr(one) == f"Verdict: {one.decision}. {one.paragraph}"
    assert len(repr(one)) < MOST
    assert len(repr(policies["a"])) < MOST
    assert re.match(r"Verdicts on 2 policies, differences from the logger, 95% simultaneous\n  a: \w+", repr(verdicts))
    assert len(repr(verdicts).splitlines()) == 3
