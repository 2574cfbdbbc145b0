"""Which kind of passes goes with a loader."""

from __future__ import annotations

import sys
from typing import Any

from fairlead.client.passes import IterablePasses, Passes, StatefulPasses
from fairlead.client.random_state import find_generators


def passes_of(loader: Any) -> Passes:
    """Return how this loader is passed over. Raises ConfigError where it cannot be put back exactly."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(loader, torch_data.DataLoader):
        from fairlead.client.torch_loader import torch_passes  # PyTorch is there only if it is used

        return torch_passes(loader)
    if hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict"):
        return StatefulPasses(loader, lambda: find_generators(loader))
    return IterablePasses(loader)
