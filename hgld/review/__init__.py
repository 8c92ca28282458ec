"""What annotators see and what they decide: the taxonomy and the review sheets."""
