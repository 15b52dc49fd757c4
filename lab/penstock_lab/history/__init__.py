"""A site's own jobs as a test-bed: `penstock history`, `penstock backtest`, `penstock whatif`.

Accounting or a workload log becomes one compact file (`store`), which says what became of each job and nothing else.
Parsing is pure (`sacct`, `records`, `joining`); `importing` reads the sources and writes the file.
"""
