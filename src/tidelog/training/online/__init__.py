"""Learning in an environment: collection, assignment of environments, throughput."""
