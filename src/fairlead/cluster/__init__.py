"""The live cluster: the server, with the backend that moves real processes."""
