"""Decisions of a search over configurations: which trials go on, which are favoured, which stop.

Nothing here reads a clock, a file or a network, so that simulated and live searches decide alike.
"""
