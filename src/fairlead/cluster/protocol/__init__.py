"""The messages and records that server, agents, command line and page exchange."""
