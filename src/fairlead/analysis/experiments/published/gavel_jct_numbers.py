"""Gavel's published results of its continuous experiments: numbers with their sources.

JCTs are those that the notebooks of the release printed, hours by jobs per hour, seed 0; the paper (OSDI'20)
draws the same curves in figures 8 to 10 and 13. [plot]: read off a drawn curve, good to a tenth.
"""

PAPER = "Gavel (OSDI'20)"
LAS, GAVEL, PACKED = "LAS", "Gavel", "Gavel with packing"
GANDIVA, ALLOX = "LAS with Gandiva's packing", "AlloX"
FIFO, FTF = "FIFO", "Finish-time fairness"

LAS_SINGLE = {  # figure 8
    LAS: {0.4: 23.26, 2.0: 23.47, 4.0: 23.49, 4.8: 35.79, 5.2: 63.78, 5.6: 95.99},
    GANDIVA: {0.4: 17.58, 2.0: 17.61, 4.0: 18.88, 4.8: 30.46, 5.2: 34.32, 5.6: 42.54},
    ALLOX: {0.4: 17.58, 2.0: 16.93, 4.0: 17.13, 4.8: 20.92, 5.2: 21.96, 5.6: 25.32},
    GAVEL: {0.4: 17.58, 2.0: 16.95, 4.0: 16.82, 4.8: 18.97, 5.2: 22.02, 5.6: 28.96, 6.0: 41.23},
    PACKED: {0.4: 18.42, 2.0: 18.26, 4.0: 16.96, 4.8: 18.67, 5.2: 19.14, 5.6: 19.64, 6.0: 20.42},
}
LAS_MULTI = {  # figure 9
    LAS: {2.0: 28.91, 2.6: 70.54, 2.8: 169.9},
    GANDIVA: {2.0: 25.16, 2.6: 60.43},
    GAVEL: {2.0: 21.90, 2.6: 36.44, 2.8: 55.8},
    PACKED: {2.0: 20.85, 2.6: 30.51, 2.8: 38.3, 3.0: 46.9},
}
FTF_MULTI = {  # figure 10
    FTF: {1.0: 26.1, 2.0: 28.9, 2.4: 38.7, 2.6: 64.4},
    GAVEL: {1.0: 18.5, 2.0: 21.8, 2.4: 27.9, 2.6: 33.9, 3.0: 52.2},
}
# Rho of the notebooks: a job's JCT over its JCT in the run of the policy "isolated", mean over the jobs.
FTF_MULTI_RHO = {FTF: {1.0: 1.00, 2.6: 1.40}, GAVEL: {1.0: 0.77, 2.6: 0.79}}
FTF_SINGLE = {FTF: {5.6: 85.5}, GAVEL: {5.6: 30.5}}
FTF_SINGLE_RHO = {FTF: {5.6: 1.00}, GAVEL: {5.6: 0.36}}
FIFO_SINGLE = {FIFO: {4.0: 25.4, 5.2: 151.7}, GAVEL: {4.0: 17.1, 5.2: 56.7}, PACKED: {5.2: 38.1}}
FIFO_MULTI = {FIFO: {2.6: 304.8}, GAVEL: {2.6: 93.6}, PACKED: {2.6: 82.2}}

# Figure 13 [plot]: at 6 jobs per hour, by length of a round in seconds; 0: no rounds, the ideal.
ROUND_LENGTH = {0.0: 38.5, 360.0: 38.5, 720.0: 38.5, 1440.0: 43.0, 2880.0: 90.0}

# Agnostic over aware, v100 and k80 only, 100 devices; by share of v100 and by seed.
MAKESPAN_GAIN = {
    0.1: (1.399128, 1.533341, 1.373464),
    0.2: (1.499276, 1.588435, 1.377788),
    0.3: (1.578346, 1.592421, 1.370682),
    0.4: (1.604264, 1.524533, 1.353002),
    0.5: (1.666300, 1.330557, 1.357304),
    0.6: (1.673249, 1.224292, 1.372397),
    0.7: (1.491450, 1.088060, 1.322424),
    0.8: (1.356331, 1.074051, 1.229077),
    0.9: (1.237316, 1.057099, 1.136827),
    1.0: (1.0, 1.0, 1.0),
}
# (share of v100, jobs per hour): by seed; None: the notebook does not print it.
JCT_GAIN = {
    (0.1, 0.4): (1.724436, 1.550913, 1.698038),
    (0.5, 0.4): (1.482283, 1.443859, None),
    (0.5, 4.4): (None, 3.216701, 2.755792),
    (1.0, 4.4): (1.0, 1.0, 1.0),
}

# Section 7.3, from memory of the paper: costs of the throughput policy over those of the cost policies,
# and the share of deadlines that these miss.
COST_GAIN = {"cost": 1.4, "cost and deadlines": 1.2}
MISSED = {"cost": 0.35, "cost and deadlines": 0.0}
