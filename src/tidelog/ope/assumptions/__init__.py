"""What the estimators assume: tests on the log, and bounds where it cannot decide.

`independence` (Markov state, constant logger, dependent episodes), `partial_identification` (decisions that the log
does not show), `sensitivity` (an unrecorded cause of the logger's decisions).
"""
