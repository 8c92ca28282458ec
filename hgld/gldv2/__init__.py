"""Google Landmarks Dataset v2: its own files, and how to get and read them."""
