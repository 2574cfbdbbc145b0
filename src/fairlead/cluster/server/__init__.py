"""The server: the driver of the core in real time, and the state of nodes, attempts and jobs around it."""
