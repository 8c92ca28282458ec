"""From what was scraped to clusters of labels: clean, encode, cluster."""
