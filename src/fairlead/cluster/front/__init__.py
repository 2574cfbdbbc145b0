"""The front: the process that talks to agents and people, so that nothing which computes holds them up.

The driver's process publishes to it what nodes shall hold and who may call; the front renews leases by
itself, and passes on what agents and people say. See docs/decisions/0021.
"""
