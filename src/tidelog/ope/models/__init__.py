"""Models of values and density ratios: exact tables for few states, networks otherwise."""
