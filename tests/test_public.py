import fairlead


def test_the_public_names_are_these_and_no_others() -> None:
    assert fairlead.__all__ == [
        "Arrival",
        "CheckError",
        "Cluster",
        "FairleadError",
        "InputError",
        "Iterator",
        "Job",
        "JobId",
        "Lease",
        "Node",
        "Options",
        "RestartCosts",
        "Result",
        "Throughputs",
        "World",
        "__version__",
        "generate",
        "parse_cluster",
        "read_throughputs",
        "read_trace",
        "simulate",
    ]
    assert all(hasattr(fairlead, name) for name in fairlead.__all__)
