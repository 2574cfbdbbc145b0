"""The program of a job that calls a function: ``python -m fairlead.client.run_call FOLDER``.

See ``futures``, which submits it. The exit code is 0 once the value is written, and ``EXIT_RAISED`` where the
function has raised an exception, which is written likewise.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fairlead.client.call_files import CallFolder, call_result

EXIT_RAISED = 71


def main(arguments: list[str]) -> int:
    """Call the function, and write what came of it. Returns the exit code."""
    folder, number = (
        CallFolder(Path(arguments[0])),
        int(os.environ.get("FAIRLEAD_ARRAY_INDEX", "0")),
    )
    function, given, named = folder.read_call(number)
    result = call_result(function, given, named)
    if os.environ.get("RANK", "0") == "0":
        folder.write_result(number, int(os.environ.get("FAIRLEAD_ATTEMPT", "0")), result)
    if not result.is_value:
        print(result.remote_traceback or result.problem, file=sys.stderr, flush=True)
        return EXIT_RAISED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
