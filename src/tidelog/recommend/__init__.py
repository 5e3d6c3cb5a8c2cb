"""The recommender: from interactions to ranked lists."""
