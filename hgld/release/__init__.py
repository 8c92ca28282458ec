"""From decisions to a dataset: build, trace, official files."""
