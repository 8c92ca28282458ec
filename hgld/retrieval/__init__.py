"""Retrieval: relevance, metrics, search and evaluation over embeddings and hierarchical labels."""
