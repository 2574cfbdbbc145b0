"""The HTTP/JSON API: one module per group of endpoints, and what they share."""
