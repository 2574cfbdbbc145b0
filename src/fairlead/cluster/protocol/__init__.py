"""What server, agents, command line and page say to one another."""
