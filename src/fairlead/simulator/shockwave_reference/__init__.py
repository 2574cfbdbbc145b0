"""The simulator of Shockwave's release where it differs, for the profile ``shockwave``."""
