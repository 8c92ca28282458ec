"""Building blocks of losses: steps, sums of steps, ranks, and base classes of families."""
