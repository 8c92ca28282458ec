"""Images for training and for embedding: which there are, how they are read, and in which batches they come."""
