"""Readers: one function per file layout that turns a split of a dataset into an `ImageSet`."""
