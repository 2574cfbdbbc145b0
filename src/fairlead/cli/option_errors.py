"""Errors about an argument of the Python interface, reworded for the option that gives it."""

import re
from collections.abc import Sequence

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
    "mtbf_s": "--mtbf-hours",
    "mttr_s": "--mttr-hours",
    "early_termination": "--early-termination",
}
# What errors call a text that one option alone gives -> option.
_TEXTS = {
    "cluster": "--cluster",
    "prices": "--prices",
    "generate": "--generate",
    "devices per server": "--devices-per-server",
    "profile": "--profile",
    "estimator": "--estimator",
    "policy": "--policy",
    "add_nodes": "--add-node",
    "remove_nodes": "--remove-node",
}
_ENTRY_POINTS = {
    "fairlead.placement": "--placement",
    "fairlead.admission": "--admission",
    "fairlead.observers": "--observer",
}
_GROUP = re.compile(r"no such entry point in the group ([\w.]+)")
_TEXT = re.compile(r"([a-z_ ]+?)(?=: | ')")
_AT_FIRST = re.compile(r"[\w -]+ \((\w+)\): ")
_AT_LAST = re.compile(r" \((\w+)\)$")


def by_option(sentence: str, words: Sequence[str]) -> str:
    """The sentence with the option as it was typed, where it names an argument that one gives. words: of the
    command line."""
    first = _AT_FIRST.match(sentence)
    if first is not None and first[1] in _OPTIONS:
        return f"{_OPTIONS[first[1]]}: {sentence[first.end() :]}"
    last = _AT_LAST.search(sentence)
    if last is not None and last[1] in _OPTIONS:
        return f"{_OPTIONS[last[1]]}: {sentence[: last.start()]}"
    text, group = _TEXT.match(sentence), _GROUP.search(sentence)
    if text is not None and _is_typed(option := _TEXTS.get(text[1], ""), words):
        return f"{option}: {sentence[text.end() :].removeprefix(':').lstrip()}"
    if group is not None and _is_typed(option := _ENTRY_POINTS.get(group[1], ""), words):
        return f"{option}: {sentence}"
    return sentence


def _is_typed(option: str, words: Sequence[str]) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in words if option)
