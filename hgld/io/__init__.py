"""Input and output: files, tables of users, HTTP, settings and locks."""
