"""Learning in an environment: collection, environment assignment, throughput."""
