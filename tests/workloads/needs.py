"""Marks of tests that need libraries which a machine may lack."""

import importlib.util

import pytest

NEEDS_TORCH = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]
NEEDS_GYMNASIUM = pytest.mark.skipif(
    importlib.util.find_spec("gymnasium") is None, reason="Gymnasium is not installed"
)
