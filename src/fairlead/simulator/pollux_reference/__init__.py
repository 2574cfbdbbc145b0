"""The world of Pollux's released simulator (OSDI'21), to the letter: jobs that train on any number of
devices, with rates and gradient statistics that were measured. Nothing but the command knows of it."""
