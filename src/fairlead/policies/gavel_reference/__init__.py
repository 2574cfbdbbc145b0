"""What policies of Gavel's release do where ours differ: for the profile ``gavel``."""
