"""One file per policy; each states its program and its source."""
