"""Values of the options of estimators."""

from fairlead.errors import ConfigError


def fraction(estimator: str, name: str, text: str) -> float:
    """Return the number from 0 to 1 that an option gives. Raises ConfigError."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1:
        raise ConfigError(
            f"estimator {estimator}: {name} must be a number from 0 to 1, got {text!r}"
        )
    return value
