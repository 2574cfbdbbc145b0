import pytest

from fairlead.cluster.agent import devices
from fairlead.cluster.agent.devices import (
    NodeDevices,
    accelerator_type,
    device_types,
    find_devices,
    visible,
)
from fairlead.errors import ConfigError

FOUND = [(0, "Tesla V100", "GPU-aa"), (1, "Tesla V100", "GPU-ab"), (2, "Tesla K80", "GPU-ba")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100 80GB PCIe", "a100-80"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla K80", "k80"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000"),
        ("???", "gpu"),
    ],
)
def test_the_accelerator_type_follows_from_the_name(name: str, expected: str) -> None:
    assert accelerator_type(name) == expected


def test_fake_devices_need_no_hardware() -> None:
    assert find_devices("v100=4", simulated_devices=True) == NodeDevices(
        "v100", (0, 1, 2, 3), simulated_devices=True
    )


@pytest.mark.parametrize(
    "text", ["v100", "v100=0", "v100=x", "=4", "../x=1", "v100=-1", "v100=9999", "v100=²"]
)
def test_bad_devices_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="--devices"):
        find_devices(text, simulated_devices=True)


def test_each_type_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_types("v100=1,k80=1", simulated_devices=True) == ["v100=1", "k80=1"]
    assert device_types("v100=4") == ["v100=4"]
    assert device_types("nvml", simulated_devices=True) == ["nvml"]
    with pytest.raises(ConfigError, match="v100 is given twice"):
        device_types("v100=1,v100=2")
    with pytest.raises(ConfigError, match="expected nvml or TYPE=NUMBER"):
        device_types("v100=1,")
    monkeypatch.setattr(devices, "_nvml", lambda: [(index, name) for index, name, _ in FOUND])
    assert device_types("nvml") == ["k80=1", "v100=2"]
    assert find_devices("k80=1").indices == (2,)
    assert find_devices("v100=1").indices == (0,)
    assert find_devices("mine=3").indices == (0, 1, 2), "a name of the operator's own"
    with pytest.raises(ConfigError, match=r"NVML finds 1 such device\(s\)"):
        find_devices("k80=2")


def test_fake_devices_must_be_named() -> None:
    with pytest.raises(ConfigError, match="--simulated-devices needs to know"):
        find_devices("nvml", simulated_devices=True)


def test_visible_devices_are_those_of_the_environment() -> None:
    assert visible(FOUND, None) == [(0, "Tesla V100"), (1, "Tesla V100"), (2, "Tesla K80")]
    assert visible(FOUND, "2,0") == [(2, "Tesla K80"), (0, "Tesla V100")]
    assert visible(FOUND, "GPU-ab") == [(1, "Tesla V100")]
    assert visible(FOUND, "") == []
    with pytest.raises(ConfigError, match="'7'"):
        visible(FOUND, "7")
