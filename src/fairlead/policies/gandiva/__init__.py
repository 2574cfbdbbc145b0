"""Gandiva's planner: time-slicing per server, packing by trial, migration, defragmentation."""
