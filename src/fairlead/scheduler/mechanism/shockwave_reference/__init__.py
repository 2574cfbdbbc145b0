"""What the mechanism of Shockwave's released simulator does otherwise, for the profile ``shockwave``."""
