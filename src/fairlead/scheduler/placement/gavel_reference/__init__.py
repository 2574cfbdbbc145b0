"""Placement as in Gavel's release, for the profiles that imitate it."""
