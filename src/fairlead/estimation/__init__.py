"""Throughput estimation: what is believed of jobs' rates, and how it is learned.

An estimator stands beside the scheduler, never in it: the core is told of beliefs by events, so that a
journal replays without the estimator.
"""
