"""Linear programs, solved exactly."""
