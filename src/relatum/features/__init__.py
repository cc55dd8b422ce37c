"""Representations of clean images, and algorithms on representations: nearest neighbours and clustering."""

from relatum.features.extract import Features, cached, extract, normalise, state_hash

__all__ = ["Features", "cached", "extract", "normalise", "state_hash"]
