"""docs/shockwave.md names every option with its default, and every command on the page exists."""

import re
from dataclasses import fields
from enum import StrEnum
from pathlib import Path

from fairlead.policies.shockwave.options import (
    DEFAULT,
    RELEASED,
    ShockwaveOptions,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "shockwave.md"


def shown(value: object) -> str:
    """A value as the table writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"{value[0]:g}, {value[1]:g} .. {value[-1]:g}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_the_table_has_every_option() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    table = {name: (default, released, text) for name, default, released, text in rows}
    for field in fields(ShockwaveOptions):
        default, released, text = table[field.name]
        assert default == shown(getattr(DEFAULT, field.name)), field.name
        assert released == shown(getattr(RELEASED, field.name)), field.name
        assert text, field.name
        kind = field.type
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            assert all(f"`{choice}`" in text for choice in kind), field.name
