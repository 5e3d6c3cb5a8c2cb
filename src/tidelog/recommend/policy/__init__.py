"""Ranked lists from a policy: compiled ranking, approximate search, tables of users."""
