"""The published results, a module for each paper's figures that belong together."""
