"""Rounds as Gavel's released simulator fills them, for the profiles that imitate it."""
