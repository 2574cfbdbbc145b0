"""The option ``--round``: the length of a round."""

from typing import Annotated, Literal

import typer


def round_length(text: str | float) -> float | Literal["auto"]:
    """Seconds of a round, or ``auto``. Of a configuration file also as a number."""
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number of seconds, nor auto") from None


LiveRoundOption = Annotated[
    str | None,
    typer.Option(
        "--round",
        metavar="SECONDS|auto",
        parser=round_length,
        help="Length of a round; auto: the shortest, of 10 s or more, of which stopping jobs and letting "
        "them go on takes at most 2 %, as measured.",
        show_default="360",
    ),
]
