"""Hierarchical landmark retrieval: from Wikimedia categories to labels, training and evaluation."""

__version__ = "0.1.0"
