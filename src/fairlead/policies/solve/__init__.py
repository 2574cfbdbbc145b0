"""Linear programmes, solved exactly."""
