"""Equinox modules independent of the algorithms; all of them read whole batches, `[..., features]`."""
