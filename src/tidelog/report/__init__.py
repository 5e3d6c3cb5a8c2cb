"""HTML reports and charts of runs and logs."""
