"""The option of commands that start a part of a cluster from within a job."""

from typing import Annotated

import typer

InsideJob = Annotated[
    bool,
    typer.Option(
        "--inside-job",
        help="Start it although this is a process of a job, with which it ends; else that is refused.",
    ),
]
