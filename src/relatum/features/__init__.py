"""Representations of clean images, and what is computed from representations alone: neighbours and clusters."""

from relatum.features.extract import Features, cached, evaluating, extract, normalise, state_hash

__all__ = ["Features", "cached", "evaluating", "extract", "normalise", "state_hash"]
