"""Goodput: the useful training per second of a job, by the devices and the batch that it has (Pollux,
OSDI'21).

Step times are modelled from those that were measured, and how much a step is worth from the noise of the
gradients. Together they say with which batch a job trains best on any number of devices.
"""
