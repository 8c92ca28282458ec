"""Everything that speaks to Wikimedia: titles, the polite client, the two sources, the scraper."""
