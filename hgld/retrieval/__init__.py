"""Retrieval with hierarchical labels: losses, models and their training; rankings, metrics and protocols."""
