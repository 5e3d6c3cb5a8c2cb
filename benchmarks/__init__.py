"""Learning and robustness studies: each is one function, run by `pytest -m slow`, with its results kept as a file."""
