"""Records of options become options of a command."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from fairlead.cli.option_records import takes_records


@dataclass(frozen=True, kw_only=True)
class Size:
    """Two options, one of which is needed."""

    width: Annotated[int, typer.Option("--width")]
    depth: Annotated[int, typer.Option("--depth")] = 2


def test_fields_are_options_in_the_place_of_the_record_and_come_as_one_value() -> None:
    seen: list[object] = []
    app = typer.Typer()

    @app.command()
    @takes_records
    def measure(
        name: Annotated[str, typer.Argument()],
        size: Size,
        loud: Annotated[bool, typer.Option("--loud")] = False,
    ) -> None:
        """Measure."""
        seen.extend((name, size, loud))

    run = CliRunner().invoke(app, ["box", "--width", "7", "--loud"])
    assert run.exit_code == 0, run.output
    assert seen == ["box", Size(width=7), True]
    assert CliRunner().invoke(app, ["box"]).exit_code == 2  # a field without a default is required
    help_text = CliRunner().invoke(app, ["--help"]).output
    assert help_text.index("--width") < help_text.index("--depth") < help_text.index("--loud")
