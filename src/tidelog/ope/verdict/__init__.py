"""The verdict: evidence, limits, decision, text, ledger of looks."""
