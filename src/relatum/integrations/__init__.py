"""Parts of relatum for other training frameworks; each module imports its framework."""
