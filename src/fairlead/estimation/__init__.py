"""Throughput estimation: what is believed of jobs' rates, and how it is learned.

An estimator is no part of the scheduler: the core learns of beliefs from events, so that a
journal replays without the estimator.
"""
