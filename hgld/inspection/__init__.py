"""Look into an evaluation: worst queries, differences between methods, curves, photo pages."""
