"""From a run to numbers, tables, pictures."""
