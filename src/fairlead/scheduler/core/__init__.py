"""The scheduler: a state machine that turns events into commands."""
