"""Tests of the estimators' assumptions, and bounds where no test is possible."""
