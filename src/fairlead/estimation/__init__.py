"""Throughput estimation: beliefs about jobs' rates, and how they are learned.

An estimator is not part of the scheduler: the core learns of beliefs from events, so that a
journal replays without the estimator.
"""
