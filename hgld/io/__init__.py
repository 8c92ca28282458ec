"""Files, HTTP, settings and locks: input and output that knows nothing of landmarks."""
