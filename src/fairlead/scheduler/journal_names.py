"""Names that fields of a setup had in journals of earlier versions."""

from typing import Any

import msgspec

_SETTINGS = {"horizon_s": "payback_period_s", "early_rounds": "deadline_margin_rounds"}


def with_present_names(setup: bytes) -> bytes:
    """Return the record of a setup, behind its letter, with the names that its fields have now. Raises
    msgspec.DecodeError where it is damaged."""
    if not any(name.encode() in setup for name in _SETTINGS):
        return setup
    fields: Any = msgspec.msgpack.decode(setup)
    settings = fields.get("settings") if isinstance(fields, dict) else None
    if not isinstance(settings, dict):
        return setup
    fields["settings"] = {_SETTINGS.get(name, name): value for name, value in settings.items()}
    return msgspec.msgpack.encode(fields)
