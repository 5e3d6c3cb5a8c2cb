"""Reports: one HTML file about a run, several runs, or a log; they only read.

`run_page` and `data_page` (the pages), `frame` (their building blocks), `charts`, `saved` (what is read of a run); the
parts of a run's page: `verdict_part`, `lists_part`, `learning_part`, `returns_part`, `coverage_part`, `settings_part`.
"""
