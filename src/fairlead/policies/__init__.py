"""One file per policy; each states its programme and its source."""
