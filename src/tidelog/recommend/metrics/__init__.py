"""Metrics of ranked lists with intervals (`ranked_lists`), and rankers without a network (`baselines`)."""
