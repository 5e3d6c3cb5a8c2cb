"""Models of values and density ratios: exact where states are few, networks elsewhere."""
