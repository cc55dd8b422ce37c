"""The paper's tables and figures as data, the grid of runs behind each, and the command that reproduces them.

Order of reading: `table` (what the paper printed) → `grid` (the runs and evaluations behind a cell) → `plan` (which of
them a command asks for) → `results` (what is on disk or in the ledger) → `reproduce` (run what is missing, by
`processes` or `executors`) → `render`, `figures`, `claims` (show it). Nothing here imports torch: runs are processes of
the published command.
"""
