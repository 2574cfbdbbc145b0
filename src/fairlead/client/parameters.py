"""The parameters of a trial, which its search has chosen."""

from __future__ import annotations

import json
import os
from typing import Union

from fairlead.errors import ConfigError

VARIABLE = "FAIRLEAD_PARAMETERS"
Parameter = Union[float, int, str, bool]


def parameters(**defaults: Parameter) -> dict[str, Parameter]:
    """Return the parameters of this trial of a search, by name, over these defaults.

    Outside of a search the defaults are all there is: the same script runs by hand. Raises ConfigError where
    ``FAIRLEAD_PARAMETERS``, which Fairlead sets, holds something else than a JSON object.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return dict(defaults)
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ConfigError(f"{VARIABLE}: expected a JSON object, got {text[:60]!r}")
    return {**defaults, **given}
