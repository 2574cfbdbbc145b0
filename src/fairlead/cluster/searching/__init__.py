"""Searches: which parameters a trial gets, and which trials are stopped early. No state, no threads."""
