"""The policies of Gavel's release where they differ from ours: for the profile ``gavel``."""
