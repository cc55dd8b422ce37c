"""The only owner of what is on disk for a run.

Without torch: `names`, `folder` (paths, lock, recipe, record), `metrics`, `results`, `artifacts`, `ledger`, `reading`
and `provenance`. With torch: `checkpoint`, `weights` and `exchange`. Import these modules by name.
"""
