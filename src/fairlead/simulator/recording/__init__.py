"""What observers of a run note, and the metrics made of it."""
