"""Simulated searches: trials whose learning curves were recorded."""
