"""The demonstration: a small live cluster with fake devices and eight jobs (``fairlead up --demo``)."""
