"""Computing in blocks and in parallel: scores, neighbours, resampling, compiled loops, processes and threads."""
