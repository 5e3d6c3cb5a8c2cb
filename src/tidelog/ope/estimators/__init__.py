"""Estimators of a policy's value from evidence; every estimate is a sum of `ratios`.

`ratios` (sums of ratios over episodes), `bandit` (episodes of one step), `sequential` (of several),
`intervals`, `support` (an estimate with its support), `estimate` (the table of all), `risk` (distribution of returns).
"""
