"""Common parts of HTML pages: templates, and a local server that admits only its user."""
