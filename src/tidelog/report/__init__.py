"""Reports: one HTML file about a run, several runs, or a log; they only read.

`page` is the page of runs and `data_page` that of a log, from the blocks of `frame`; `runs` is what is read of a run,
and its settings. The parts: `verdict` (the answer and the estimates), `policies` (actions, returns, learning curves),
`lists` (recommenders). The pictures are those of `tidelog.plots`.
"""
