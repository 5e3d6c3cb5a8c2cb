"""Equinox modules that know no algorithm; all of them take whole batches, `[..., features]`."""
