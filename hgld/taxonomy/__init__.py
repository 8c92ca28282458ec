"""Groups, decisions on labels, and what identifies a label."""
