"""What the HTML pages of hgld have in common: templates, and a local server that admits only its user."""
