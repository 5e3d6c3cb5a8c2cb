"""The verdict: comparison, limits, decision, text, ledger of looks."""
