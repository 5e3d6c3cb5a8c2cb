"""What is wrong with a log: errors, warnings, dependent rows, and the rows that are written aside."""
