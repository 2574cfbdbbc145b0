"""The scheduler: a pure state machine, with what drives it and what it writes down."""
