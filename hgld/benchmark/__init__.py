"""A comparison of methods: which trainings, on which devices, and what came of them."""
