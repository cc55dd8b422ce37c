"""Everything that a run stores on disk; no other package reads or writes these files directly.

Without torch: `names`, `folder` (paths, lock, recipe, record), `metrics`, `results`, `artifacts`, `ledger`, `reading`,
`heldout` and `provenance`. With torch: `checkpoint`, `weights`, `export` and `import_weights`. Import these modules by
name.
"""
