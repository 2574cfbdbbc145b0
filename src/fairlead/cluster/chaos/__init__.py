"""Faults on purpose: a real cluster of processes is hurt at random moments, and must lose nothing.

``run`` puts it together: ``cluster`` starts server and agents, ``work`` keeps jobs coming, ``faults`` hurts,
``ledger`` proves from what the jobs themselves wrote down that every step counts once.
"""
