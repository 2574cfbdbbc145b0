"""From who runs to which devices."""
