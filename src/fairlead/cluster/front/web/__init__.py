"""The web page of the live cluster: HTML made on the server, with nothing from elsewhere."""

from fairlead.cluster.front.web.routes import add_pages

__all__ = ["add_pages"]
