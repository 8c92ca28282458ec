"""Input and output that is not specific to landmarks: files, columns, CSV, HTTP, settings and locks."""
