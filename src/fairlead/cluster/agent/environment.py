"""The part of the agent's own environment that is passed on to ranks."""

import os

_PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH"),
        *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
        # Which Slurm job it is a part of, for ``--launch-with srun``. With others, as SLURM_NTASKS,
        # frameworks would believe that Slurm has started the ranks.
        *("SLURM_JOB_ID", "SLURM_CONF"),
    }
)


def base_environment() -> dict[str, str]:
    """Return the variables for paths and locale, and none that might be a secret."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith("LC_")
    }
