"""The paper's tables and figures as data, the runs behind each cell, and the command that reproduces them.

Reading order: `published` (what the paper printed) → `grid` (the runs and evaluations behind a cell) → `plan` (those
that a command needs) → `measured` (results on disk or in the ledger) → `scheduler` (runs what is missing) → `render`,
`figures`, `claims` (show it) → `reproduce` (the command). Nothing here imports torch: runs are processes of the
published command.
"""
