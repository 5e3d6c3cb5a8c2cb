"""Collectors: processes that step blocks of the copies of host environments, here or as actors of Ray."""
