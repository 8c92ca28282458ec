"""The review page: a local web server for one annotator, its forms, views and HTML."""
