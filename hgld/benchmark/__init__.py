"""Comparison of retrieval methods over several seeds: training runs, evaluation, statistics and result files."""
