"""Readers of data sets in the layouts in which they are published: each makes a manifest."""
