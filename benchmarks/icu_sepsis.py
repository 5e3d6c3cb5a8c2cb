"""Discrete IQL on ICU-Sepsis: 20,000 episodes played by the clinicians' policy, values by linear solve.

Settings were chosen on a log played with seed 1 and are reported on the log played with seed 0. Rewards are 0 or 1 and
advantages a few hundredths, which is why the temperature is high: at 3, the locomotion default, IQL would only clone.

ICU-Sepsis has 716 states and 25 treatments: Choudhary, Gupta, Thomas, "ICU-Sepsis: A Benchmark MDP Built from Real
Medical Data", RLC 2024, arXiv:2406.05646; `dynamics.npz` of github.com/icu-sepsis/icu-sepsis. States 713 (death), 714
(survival) and 715 are final here; the original moves from 713 and 714 to 715 with reward 0, which changes no value.
Entering 714 has reward 1.
"""

from pathlib import Path

import numpy as np

import tidelog as tl
from benchmarks.keep import SHARED, keep, seed_interval
from benchmarks.problems import drawn_from, recorded
from tidelog.envs import Tabular, TabularEnvironment

EPISODES, STEPS, SEEDS = 20_000, 20_000, 3
COMMAND = "pytest -m slow tests/learns/test_studies.py -k icu"


def icu_sepsis(path: Path = SHARED / "data/icu_sepsis/dynamics.npz") -> tuple[Tabular, np.ndarray]:
    """Return the problem, observed as the number of the state, and its clinicians' policy, [716, 25]."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in ("tx_mat", "r_mat", "d_0", "expert_policy")}
    final = np.zeros(len(arrays["d_0"]), bool)
    final[[713, 714, 715]] = True
    return Tabular(arrays["tx_mat"], arrays["r_mat"], arrays["d_0"], final, name="icu-sepsis"), arrays["expert_policy"]


def expert_log(problem, expert, episodes: int, seed: int) -> tl.Log:
    """Play the clinicians' policy; observations stay integer codes, propensities are theirs."""
    act = drawn_from(expert, lambda seen: seen["observation"][:, 0])
    return recorded(TabularEnvironment(problem, 1_000), act, episodes, seed)


def iql(discount: float) -> tl.IQL:
    """The settings of IQL."""
    return tl.IQL(discount=discount, expectile=0.8, temperature=30.0, embedding=64, reward_scaling="none")


def study() -> dict:
    """Train IQL and BC, and keep their exact values beside the expert's and the optimum."""
    problem, expert = icu_sepsis()
    log = expert_log(problem, expert, EPISODES, seed=0)
    states = problem.observations()
    evaluate = {"exact value": lambda policy: problem.value_of(policy(states))}
    algorithms = {"iql": iql(1.0), "bc": tl.BC()}
    found = {"expert": problem.value_of(expert), "optimal": problem.optimal()[0], "episodes": EPISODES, "steps": STEPS}
    for name, algorithm in algorithms.items():
        run = tl.fit(algorithm, log, STEPS, seeds=SEEDS, evaluate=evaluate, eval_every=STEPS // 20)
        final = [row["exact value"] for row in run.metrics if row["update"] == STEPS]
        curve = [{key: row[key] for key in ("update", "member", "seed", "exact value")} for row in run.metrics]
        found[name] = {"greedy": final, "interval": seed_interval(final), "curve": curve}
    keep("icu_sepsis_iql", COMMAND, found)
    return found
