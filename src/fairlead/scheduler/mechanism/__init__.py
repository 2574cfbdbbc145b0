"""From long-run shares to who runs in this round."""
