"""The recommender: from interactions to ranked lists.

`interactions` reads and splits logs of who chose which item (no JAX). `recommender_bcq` is the algorithm, from top to
bottom; it uses `next_item` (windows of histories, the cross-entropy), `networks` (items, critics, generator, history
encoders) and `ranking` (lists from a policy). `tables` recommends for tables of users, and `evaluate` compares
ranked lists with those of rules that count.
"""
