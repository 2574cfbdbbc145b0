"""Lines of the logs of servers and agents."""

import logging


def log_with_times(level: int) -> None:
    """Write log records of this level and above to stderr, each with the time of day."""
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for name in (
        "httpx",
        "httpcore",
    ):  # of each request they write the address, which may hold a secret
        logging.getLogger(name).setLevel(logging.WARNING)
