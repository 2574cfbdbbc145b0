"""How the simulator of Shockwave's release works where it differs: for the profile ``shockwave``."""
