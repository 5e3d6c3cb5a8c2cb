"""Off-policy evaluation: how good a policy is, judged from a log of another decision maker.

`judge` reads as one sentence: the question, the behaviour policy's probabilities (`propensities`), the policy's
(`policies`), values (`tabular`, `networks`), the evidence (`evidence`, `policy_evidence`), estimates (`estimators`,
`intervals`), tests and bounds of what they assume (`assumptions`), the limits, rules and decision (`decide`), the
distribution of returns (`risk`), the words (`text`), and the result with its file (`verdict`). `ledger` counts looks,
`rules` learns simple rules of a log.
"""
