"""The style of figures for papers: their size, their type, and how lines differ."""

import math
from dataclasses import dataclass
from enum import StrEnum

from fairlead.errors import ConfigError

COLUMN_IN = 3.33  # width of a column in the two-column templates of ACM and USENIX
GUTTER_IN = 0.33  # between two columns
ASPECT = 0.65  # height over width
FONT_PT = 8.0
LEGEND_LINE = 1.6  # height of a line of a legend, times the size of its type
MAX_LEGEND = 0.4  # part of a figure's height that its legend may take


class SeedInterval(StrEnum):
    """The interval that error bars over seeds show."""

    RANGE = "range"  # the least and the greatest
    CONFIDENCE = "confidence"  # the 95 % confidence interval of the mean


@dataclass(frozen=True, kw_only=True)
class FigureStyle:
    """A figure that is put into a paper at its own size, so that its type keeps the size it is given.

    columns: width in columns of the paper, the gutters between them included; column_in: width of one, and
    height_in: height of the figure, inches (None: ``ASPECT`` times the width, more where the
    legend needs it); font_pt: size of the type,
    points; line_styles: lines differ by dashes and markers and bars by hatches, besides their colours, so
    that they are told apart in a grey print too; titles: whether a figure says what it shows.
    """

    columns: float = 1.0
    column_in: float = COLUMN_IN
    height_in: float | None = None
    font_pt: float = FONT_PT
    line_styles: bool = False
    titles: bool = True

    @property
    def width(self) -> float:
        """Width of the figure, inches."""
        gutters = max(math.ceil(self.columns) - 1, 0)
        return self.columns * self.column_in + gutters * GUTTER_IN

    @property
    def height(self) -> float:
        """Height of the figure, inches; a figure across several columns is as high as one of a single column
        and a half."""
        return self.height_in or ASPECT * min(self.width, 1.5 * self.column_in)

    def height_with_legend(self, lines: int) -> float:
        """Height of a figure whose legend has so many lines, inches: more than ``height`` where that leaves
        the axes too little. Raises ConfigError where it is not to be changed."""
        legend_in = lines * LEGEND_LINE * self.font_pt / 72
        least_in = legend_in / MAX_LEGEND
        if self.height_in is None:
            return max(self.height, self.height + legend_in - MAX_LEGEND * self.height)
        if self.height < least_in:
            raise ConfigError(
                f"--height: must be at least {least_in:.2g} for a legend of {lines} lines, got "
                f"{self.height:g}"
            )
        return self.height

    def checked(self) -> "FigureStyle":
        """Return itself. Raises ConfigError where a size is outside the range of readable figures."""
        for option, name, least, most in (
            ("--width", "columns", 0.5, 4.0),
            ("--column-width", "column_in", 1.5, 12.0),
            ("--height", "height", 0.8, 20.0),  # follows from the others where it is not given
            ("--font-size", "font_pt", 4.0, 24.0),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigError(f"{option}: must be from {least:g} to {most:g}, got {value:g}")
        return self
