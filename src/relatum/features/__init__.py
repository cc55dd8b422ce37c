"""Representations of clean images, and algorithms on representations: nearest neighbours and clustering."""

from relatum.features.extract import Features, cached, evaluating, extract, normalise, state_hash

__all__ = ["Features", "cached", "evaluating", "extract", "normalise", "state_hash"]
