"""From a table to a policy: run `tidelog demo` first, or point it at a table and mapping of your own."""

import sys

import tidelog as tl

table, mapping, steps = [
    *sys.argv[1:],
    *["tidelog-demo/treatment.csv", "tidelog-demo/columns.toml", "3000"][len(sys.argv) - 1 :],
]
log = tl.read_log(table, mapping)
train, held_out = log.split(0.8, seed=0)
run = tl.fit(tl.IQL(temperature=1.5, discount=1.0, hidden=(64, 64)), train, steps=int(steps))
policy = run.policy()
agreement = (policy(held_out.transitions.observation).codes == held_out.action).mean()
print(f"{len(train.episodes)} episodes learnt from, {len(held_out.episodes)} held out")
print(f"on held-out decisions the policy does what the behaviour policy did in {agreement:.0%} of cases")
