"""Tests of what estimators assume, and bounds where it cannot be tested."""
