"""Off-policy estimates with their support, and the verdict on a policy."""
