"""What the losses share: steps, sums over a retrieval set, ranks."""
