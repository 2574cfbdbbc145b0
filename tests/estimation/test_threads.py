"""What is estimated does not depend on how many threads the linear algebra library takes."""

import os
import subprocess
import sys

SCRIPT = """
import hashlib
from fairlead.estimation.prior import Prior
from fairlead.model.job_type import JobType
from fairlead.simulator.traces.throughput_tables import builtin_throughputs

table = builtin_throughputs()
prior = Prior(table, table.slots[:6])
digest = hashlib.sha256(prior.root.tobytes())
for family in ("ResNet-50 (batch size 48)", "LM (batch size 10)", "unheard of"):
    one = prior.job_type(JobType.parse(family, 2))
    for array in (one.mean, one.coefficients, one.residual, one.model_coefficients, one.model_residual):
        digest.update(array.tobytes())
print(digest.hexdigest())
"""


def test_same_bits_on_one_thread_and_on_several() -> None:
    digests = set()
    for threads, seed in (("1", "1"), ("2", "2"), ("4", "3")):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(run.stdout)
    assert len(digests) == 1
