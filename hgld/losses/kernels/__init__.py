"""Building blocks shared by losses: steps, sums of steps, ranks, and the base classes of families of losses."""
