"""What pages have in common: how their templates are compiled."""
