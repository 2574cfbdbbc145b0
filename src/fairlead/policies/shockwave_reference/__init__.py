"""The policies of Shockwave's release that differ from ours and Gavel's: for the profile ``shockwave``."""
