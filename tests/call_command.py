"""Fairlead's command line, called in the test's own process."""

from fairlead.cli.main import main


def call(*arguments: object) -> int:
    """Run a command; its exit code."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0
