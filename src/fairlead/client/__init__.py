"""The training side: what runs inside a job's own processes. Imports nothing but the standard library
and msgspec, so that a training script starts fast and may fork."""
