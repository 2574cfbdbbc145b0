"""What is wrong with an argument of the Python interface, said of the option that gives it."""

import re

# Argument of ``fairlead.simulate`` and the like, as errors name it in brackets -> option.
_OPTIONS = {
    "round_s": "--round",
    "stop_at_s": "--stop-at",
    "solve_s": "--solve-time",
    "solve_interval_s": "--solve-interval",
    "preemption_hysteresis": "--preemption-hysteresis",
    "measured_jobs": "--window",
    "rate_noise": "--rate-noise",
    "rate_bias": "--rate-bias",
    "mtbf_s": "--mtbf",
    "mttr_s": "--mttr",
    "early_termination": "--early-termination",
}
_AT_FIRST = re.compile(r"[\w -]+ \((\w+)\): ")
_AT_LAST = re.compile(r" \((\w+)\)$")


def by_option(sentence: str) -> str:
    """The sentence with the option as it was typed, where it names an argument that one gives."""
    first = _AT_FIRST.match(sentence)
    if first is not None and first[1] in _OPTIONS:
        return f"{_OPTIONS[first[1]]}: {sentence[first.end() :]}"
    last = _AT_LAST.search(sentence)
    if last is not None and last[1] in _OPTIONS:
        return f"{_OPTIONS[last[1]]}: {sentence[: last.start()]}"
    return sentence
