"""The whole label pipeline on the bundled sample, with a local server in Wikimedia's place."""
