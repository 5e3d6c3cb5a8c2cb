"""Optuna proposes hyper-parameters in batches, and each batch is a population that is trained side by side.

    python examples/optuna_search.py [visits.csv columns.toml]

Three parts of the log: one to learn from, one that chooses among all trials, one that judges the chosen policy alone.
Without arguments the log is simulated.
"""

import sys

import optuna

import tidelog as tl

BATCHES, SIZE, STEPS = 3, 4, 300

log = tl.read_log(*sys.argv[1:]) if sys.argv[1:] else tl.collect("treatment", episodes=4_000, seed=0)
learnt, rest = log.split(0.4, seed=0)
choice, held_out = rest.split(0.5, seed=0)


def propose(trial: optuna.Trial) -> tl.IQL:
    temperature = trial.suggest_float("temperature", 0.1, 3.0, log=True)
    expectile = trial.suggest_float("expectile", 0.5, 0.9)
    return tl.IQL(temperature=temperature, expectile=expectile, discount=1.0, hidden=(64, 64))


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=SIZE))
policies = {}
for _ in range(BATCHES):
    trials = [study.ask() for _ in range(SIZE)]
    run = tl.fit([propose(trial) for trial in trials], learnt, STEPS, progress=False)
    for member, trial in enumerate(trials):
        policies[trial.number] = run.policy(member=member)
        row = tl.estimate(policies[trial.number], choice, "wdr", sample=True, model="tabular")["wdr"]
        study.tell(trial, row.low)  # the lower end of the interval: a few lucky episodes do not win

print(f"{len(study.trials)} trials; the best one: {study.best_params}, at least {study.best_value:.3f} on its own part")
verdict = tl.judge(policies[study.best_trial.number], held_out, sample=True, model="tabular", progress=False)
print(verdict.advice, verdict.paragraph, sep="\n")
