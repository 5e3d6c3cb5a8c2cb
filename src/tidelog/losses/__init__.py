"""Pure functions of arrays that return per-sample errors: no networks, no means."""
