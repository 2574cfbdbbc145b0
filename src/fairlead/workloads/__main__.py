"""``python -m fairlead.workloads NAME`` trains one of the papers' workloads."""

from fairlead.workloads.command_line import main

if __name__ == "__main__":
    main()
