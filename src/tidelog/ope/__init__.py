"""Off-policy evaluation: estimates with their support, and the verdict on a policy."""
