"""What playing one round ahead gains: decisions a second with and without the thread, on environments of the host.

`python -m benchmarks.play_ahead`. PPG's classic-control preset, from the third round on; the two ways take turns. The
last environment waits a millisecond in every step of its copies, as a simulator elsewhere does.
"""

import time
from statistics import median

import tidelog as tl
from benchmarks.keep import keep
from tidelog.envs.tabular import PointMass
from tidelog.training.learn import learn

COMMAND = "python -m benchmarks.play_ahead"
WARM, ROUNDS, REPEATS = 2, 18, 3


class Waiting(PointMass):
    """A point mass that answers after a millisecond."""

    name = "point-mass that waits 1 ms"

    def step(self, action):
        """The step, later."""
        time.sleep(1e-3)
        return super().step(action)


ENVIRONMENTS = {
    "CartPole-v1": lambda: "CartPole-v1",
    "Pendulum-v1": lambda: "Pendulum-v1",
    Waiting.name: lambda: Waiting(16),
}


def measured(env: object, ahead: bool) -> dict:
    """Decisions a second, and the share of the time that went into playing or waiting for what is played."""
    algorithm = tl.PPG.preset("classic-control")
    size = algorithm.environments * algorithm.rollout_steps
    run = learn(algorithm, env, (WARM + ROUNDS) * size, ahead=ahead, every=(WARM + ROUNDS) * size, train=False)
    begun, at = 0.0, 0
    for _ in run.stream():
        if not at and run.done >= WARM * size:
            begun, at = time.monotonic(), run.done
    rate = (run.done - at) / (time.monotonic() - begun)
    return {"rate": rate, "share": run.metrics[-1]["time/collect_share"]}


def main() -> None:
    """Measure, keep and print."""
    found = {}
    for name, env in ENVIRONMENTS.items():
        pairs = [{way: measured(env(), way == "ahead") for way in ("at once", "ahead")} for _ in range(REPEATS)]
        rates = {way: [pair[way]["rate"] for pair in pairs] for way in pairs[0]}
        shares = {way: median(pair[way]["share"] for pair in pairs) for way in pairs[0]}
        gains = [pair["ahead"]["rate"] / pair["at once"]["rate"] for pair in pairs]
        found[name] = {"rates": rates, "collect_share": shares, "gain": median(gains), "gains": gains}
        print(name, {way: round(median(r)) for way, r in rates.items()}, shares, [round(g, 3) for g in gains])
    keep("play_ahead", COMMAND, {"warm_rounds": WARM, "rounds": ROUNDS, "environments": found})


if __name__ == "__main__":
    main()
