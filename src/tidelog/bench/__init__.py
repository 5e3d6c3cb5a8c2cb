"""The training speed of this machine, as a share of the speed of its matrix products.

`speed` (the measurement), `plain` (a plain compiled loop of discrete BCQ, the baseline).
"""
