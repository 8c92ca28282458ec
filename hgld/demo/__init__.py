"""Demo of the label pipeline on the bundled sample, with a local server in place of Wikimedia."""
