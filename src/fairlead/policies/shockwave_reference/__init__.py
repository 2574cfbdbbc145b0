"""What policies of Shockwave's release do where ours, and those of Gavel's, differ: for the profile
``shockwave``."""
