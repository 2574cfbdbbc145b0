"""The mechanism of Shockwave's released simulator, where it differs: for the profile ``shockwave``."""
