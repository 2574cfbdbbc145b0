"""Training programs of the seven workloads of Gavel's and Shockwave's papers, in PyTorch::

    python -m fairlead.workloads resnet18 --batch-size 32

One module per workload builds its model, data and optimizer; ``training`` is the loop that all of them share,
``data`` reads or generates their samples, ``adaptation`` has the rules by which batch sizes change, and
``registry`` lists them. They import nothing of Fairlead but its training side (``fairlead.client``).
"""
