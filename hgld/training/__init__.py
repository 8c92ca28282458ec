"""Training of embedding models: settings, the loop, and the folder of a run."""
