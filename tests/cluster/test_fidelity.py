"""The comparison of live and simulated runs, benchmarks/live_fidelity.py, in short. How close the two come
depends on the machine and what else runs on it, so it is that benchmark's matter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RATES = """family,scale_factor,accelerator,locality,steps_per_s,source
vision,1,v100,consolidated,100,x
vision,1,k80,consolidated,20,x
language,1,v100,consolidated,62.5,x
language,1,k80,consolidated,25,x
speech,1,v100,consolidated,50,x
speech,1,k80,consolidated,31.25,x
ranking,1,v100,consolidated,50,x
ranking,1,k80,consolidated,45.4545,x
language,2,v100,consolidated,100,x
language,2,k80,consolidated,40,x
"""


@pytest.mark.parametrize("policy", ["las_aware"])
def test_the_same_jobs_end_live_and_simulated(tmp_path: Path, policy: str) -> None:
    """Eight jobs; the journal of the live run is replayed."""
    rates, runs = tmp_path / "rates.csv", tmp_path / "runs.json"
    rates.write_text(RATES)
    script = ROOT / "benchmarks" / "live_fidelity.py"
    short = ("--runs", "1", "--jobs", "8", "--interarrival", "0.8", "--work", "1.5,4")
    known = ("--measured", str(rates), "--start-ms", "100", "--judge", "its own")
    told = ("--policies", policy, "--limits", "inf,inf,inf", "--json", str(runs))
    done = subprocess.run(
        (sys.executable, str(script), *short, *known, *told),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run, _ = json.loads(runs.read_text())
    assert run["live_starts"] >= 8
    assert run["sim_starts"] >= 8
    assert len(run["live_jct_s"]) == len(run["sim_jct_s"]) == 8
