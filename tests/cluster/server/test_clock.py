from dataclasses import dataclass

import msgspec
import pytest

from fairlead.cluster.server.clock import Clock


@dataclass
class Machine:
    """A machine's clocks, and what happens to them."""

    boot: str = "first"
    boot_s: float = 1000.0
    wall_s: float = 1e9

    def passes(self, seconds: float) -> None:
        self.boot_s += seconds
        self.wall_s += seconds

    def reboots(self, off_s: float) -> None:
        self.boot, self.boot_s = self.boot + "+", 5.0
        self.wall_s += off_s

    def clock(self) -> Clock:
        return Clock(lambda: self.boot, lambda: self.boot_s, lambda: self.wall_s)


def test_it_begins_at_nought_and_counts_seconds() -> None:
    machine = Machine()
    clock = machine.clock().from_meta(None)
    assert clock.now_s() == 0.0
    machine.passes(2.5)
    assert clock.now_s() == 2.5


@pytest.mark.parametrize("jump_s", [-1e6, 1e6])
def test_setting_the_wall_clock_changes_nothing(jump_s: float) -> None:
    machine = Machine()
    clock = machine.clock().from_meta(None)
    machine.passes(10.0)
    machine.wall_s += jump_s
    assert clock.now_s() == 10.0
    meta = clock.to_meta()
    machine.wall_s -= 2 * jump_s
    machine.passes(1.0)
    assert machine.clock().from_meta(meta).now_s() == 11.0


def test_it_goes_on_while_the_server_is_down() -> None:
    machine = Machine()
    clock = machine.clock().from_meta(None)
    machine.passes(10.0)
    meta = clock.to_meta()
    machine.passes(7.0)
    assert machine.clock().from_meta(meta).now_s() == 17.0


@pytest.mark.parametrize(("off_s", "now_s"), [(60.0, 70.0), (-60.0, 10.0)])
def test_over_a_reboot_the_wall_clock_counts_but_never_backwards(
    off_s: float, now_s: float
) -> None:
    machine = Machine()
    clock = machine.clock().from_meta(None)
    machine.passes(10.0)
    meta = clock.to_meta()
    machine.reboots(off_s)
    again = machine.clock().from_meta(meta)
    assert again.now_s() == now_s
    machine.passes(3.0)
    assert again.now_s() == now_s + 3.0


def test_it_never_goes_behind_a_time_that_was_seen() -> None:
    machine = Machine()
    meta = machine.clock().from_meta(None).to_meta()
    machine.reboots(-60.0)
    assert machine.clock().from_meta(meta, at_least_s=25.0).now_s() == 25.0


def test_the_sources_of_this_machine_agree_with_each_other() -> None:
    clock = Clock()
    first = clock.now_s()
    again = Clock().from_meta(clock.to_meta())
    assert 0.0 <= first <= again.now_s() < first + 60.0


def test_nonsense_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        Clock().from_meta("{}")
