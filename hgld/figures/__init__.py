"""Every picture: what a stage draws is here, what it computes is not."""
