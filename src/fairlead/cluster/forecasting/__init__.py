"""When jobs will end: simulations from the present state, with intervals from past forecasts."""
