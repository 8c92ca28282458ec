"""Ground truth of the retrieval protocols, read from the files that their authors published."""
