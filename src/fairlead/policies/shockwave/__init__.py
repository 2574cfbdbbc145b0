"""Shockwave (NSDI'23): planning ahead for jobs that change while they train."""
