"""The review page: HTTP, forms, views and HTML."""
