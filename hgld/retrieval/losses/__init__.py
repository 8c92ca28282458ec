"""Losses of retrieval: rank losses and their surrogates, decomposability, and the baselines of the papers."""
