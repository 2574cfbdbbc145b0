"""Numbers published with Shockwave (Zheng et al., NSDI'23), to hold ours against.

They come from the release's result files: simulations and physical runs of its 120-job trace on 32 V100,
which the paper's figures show. There are no such files for the larger clusters; for 64 devices, runs of the
released simulator stand in.
"""

from dataclasses import dataclass

PAPER = "Shockwave (Zheng et al., NSDI'23)"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a run, ours or published."""

    makespan_s: float
    avg_jct_s: float
    worst_rho: float  # static: JCT / (time alone x max(1, jobs / devices))
    unfair_1: float  # per cent of the jobs with a rho above 1
    unfair_1_05: float  # ... above 1.05
    unfair_1_1: float  # ... above 1.1


# Simulations of the 120-job trace on 32 devices, from the release's result files, by policy as we name it.
# No two of its three files for Shockwave agree: makespans of 23,749 to 24,418 s, worst rho of 1.64 to 2.00.
CANONICAL = {
    "shockwave": Numbers(24197, 9958, 1.784, 7.5, 5.0, 5.0),
    "ossp": Numbers(24205, 19807, 7.741, 74.2, 74.2, 71.7),
    "themis": Numbers(31929, 11302, 3.438, 28.3, 22.5, 17.5),
    "las": Numbers(33208, 11274, 2.947, 27.5, 25.0, 21.7),
    "allox": Numbers(32489, 9926, 4.964, 30.8, 27.5, 26.7),
    "mst": Numbers(31909, 9655, 4.976, 27.5, 25.0, 22.5),
    "gandiva_fair": Numbers(32367, 12574, 1.854, 55.0, 51.7, 43.3),
}

# Runs of the released simulator on the 220-job trace on 64 devices; Shockwave's with an exact solver of its
# integer programs in place of Gurobi.
RERUN_64 = {
    "shockwave": Numbers(24344, 8515, 2.166, 5.0, 4.5, 4.1),
    "ossp": Numbers(25076, 19749, 8.793, 77.3, 76.4, 75.0),
    "themis": Numbers(33752, 9597, 3.040, 24.1, 20.0, 18.2),
    "las": Numbers(33632, 9233, 3.378, 19.1, 15.9, 13.6),
    "allox": Numbers(33872, 8134, 3.206, 24.5, 22.3, 18.6),
    "mst": Numbers(35819, 9243, 6.915, 25.9, 25.0, 22.7),
    "gandiva_fair": Numbers(31472, 10895, 1.778, 45.9, 40.0, 31.8),
}

# The paper's abstract: how much shorter the makespan is than under fair schedulers, and how much fairer.
ABSTRACT = {"makespan_s": 1.3, "worst_rho": 2.0}


@dataclass(frozen=True, slots=True)
class Physical:
    """A run on 32 V100 at TACC, and the simulation of it in the release's files."""

    file: str  # what the release calls the policy
    run: Numbers
    makespan_s: float  # of that simulation
    avg_jct_s: float


# Themis: 3,600 s have been added to the makespan, as the authors do: clocks changed during the run.
PHYSICAL = {
    "released": Physical(
        "shockwave", Numbers(25265, 10509.3, 1.824, 16.7, 10.0, 8.3), 23399.4, 9943.8
    ),
    "ossp": Physical(
        "min_total_duration", Numbers(25555, 17831.1, 5.789, 75.0, 73.3, 70.8), 24108.9, 19385.2
    ),
    "themis": Physical(
        "finish_time_fairness", Numbers(31441, 10929.9, 2.850, 21.7, 20.0, 16.7), 31448.6, 11020.7
    ),
    "las": Physical(
        "max_min_fairness", Numbers(34619, 12113.0, 3.457, 32.5, 28.3, 26.7), 33067.8, 11091.5
    ),
    "allox": Physical("allox", Numbers(31971, 9610.7, 4.630, 28.3, 26.7, 25.0), 32368.6, 9801.8),
    "mst": Physical(
        "max_sum_throughput_perf", Numbers(34701, 9703.4, 5.201, 28.3, 28.3, 25.0), 31569.5, 9511.0
    ),
}
