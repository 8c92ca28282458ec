"""Evaluation of retrieval: ranking, relevance, metrics, protocols and reports."""
