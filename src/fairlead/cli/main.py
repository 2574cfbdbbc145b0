"""The ``fairlead`` command. Exit codes: 0 ok, 1 a check failed, 2 bad input or usage, 130 interrupted,
143 terminated.

Imports nothing that takes long: what Ctrl-C does is settled before that.
"""

from fairlead.cli import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: "Sequence[str] | None" = None) -> None:
    """Run the command line; every error that Fairlead raises on purpose is one line on stderr. arguments:
    None = those of the process, which is the command's own then."""
    if arguments is None:
        interrupts.end_process()
    from fairlead.cli.application import run

    try:
        run(arguments)
    except KeyboardInterrupt:
        raise SystemExit(interrupts.CODE) from None
    finally:
        interrupts.forget_caught()
        if arguments is None:
            interrupts.end_process()
