"""Retrieval with hierarchical labels: rankings, their metrics, and the protocols that the field evaluates with."""
