"""Lines of logs say when they were written."""

import re
import subprocess
import sys


def test_a_line_begins_with_the_time_of_day() -> None:
    program = (
        "import logging\n"
        "from fairlead.cluster.log_lines import log_with_times\n"
        "log_with_times(logging.WARNING)\n"
        "logging.getLogger('x').info('too little')\n"
        "logging.getLogger('x').warning('node %s is cordoned', 'bad')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert re.fullmatch(r"\d\d:\d\d:\d\d node bad is cordoned\n", done.stderr)
