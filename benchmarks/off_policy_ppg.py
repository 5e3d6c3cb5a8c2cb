"""Off-policy PPG against PPG on CartPole: decisions until it is solved.

`python -m benchmarks off_policy_ppg`. A seed has solved CartPole at its first report at which 20
deterministic episodes return 475 on average; reports are 2,048 decisions apart for all. Settings are the presets; that
of off-policy PPG was chosen on seeds 100 to 102, which are not reported.
"""

import tidelog as tl
from benchmarks.keep import keep, seed_interval

ENV, SEEDS, EPISODES, SOLVED = "jax:CartPole-v1", [0, 1, 2, 3, 4], 20, 475.0
EVERY, STEPS = 2_048, 61_440
COMMAND = "python -m benchmarks off_policy_ppg"


def played(algorithm: tl.PPG | tl.OffPolicyPPG, steps: int = STEPS) -> dict:
    """Deterministic returns at every report, and the decisions at which each seed had solved the task."""
    run = tl.learn(algorithm, ENV, steps, SEEDS, eval_every=EVERY, evaluate={ENV: EPISODES})
    curves = {s: [(r["decisions"], r[f"play/{ENV}"]) for r in run.metrics if r["seed"] == s] for s in SEEDS}
    solved = [next((at for at, mean in curve if mean >= SOLVED), None) for curve in curves.values()]
    found = {"curves": curves, "solved_at": solved}
    return found | ({} if None in solved else {"solved_interval": seed_interval(solved)})


def study() -> dict:
    """Both with their classic-control presets."""
    found = {
        "ppg": played(tl.PPG.preset("classic-control")),
        "off_policy_ppg": played(tl.OffPolicyPPG.preset("classic-control")),
    }
    content = {"env": ENV, "steps": STEPS, "every": EVERY, "episodes": EPISODES, "solved": SOLVED, **found}
    saved = [a - b for a, b in zip(found["ppg"]["solved_at"], found["off_policy_ppg"]["solved_at"], strict=True)]
    content |= {"saved": saved, "saved_interval": seed_interval(saved)}
    keep("off_policy_ppg_cartpole", COMMAND, content)
    return {name: f["solved_at"] for name, f in found.items()} | {"saved": content["saved_interval"]}
