"""The agent of a node: it owns the node's devices and starts and stops the ranks of jobs."""
