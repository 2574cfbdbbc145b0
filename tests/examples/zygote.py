"""Imports PyTorch once and forks ranks: a line of JSON on stdin starts a job, a line on stdout ends it.

In: [[environment, arguments, file of its output], ...], a rank each. Out: their exit codes.
"""

import json
import os
import runpy
import sys
import traceback

import numpy  # noqa: F401
import torch
import torch._dynamo
import torch.distributed  # noqa: F401


def rank(environment: dict[str, str], arguments: list[str], output: str) -> int:
    """The exit code of a script, run in this process."""
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(environment)
    sys.argv = arguments
    sys.path.insert(0, os.path.dirname(arguments[0]))
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as left:
        return int(left.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for line in sys.stdin:
        pids = []
        for environment, arguments, output in json.loads(line):
            pid = os.fork()
            if pid == 0:
                code = rank(environment, arguments, output)
                sys.stdout.flush()
                os._exit(code)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
