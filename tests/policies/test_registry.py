"""Policies by name."""

import sys
from pathlib import Path

import pytest

from fairlead.errors import ConfigError, FairleadWarning, SolveError
from fairlead.model.plan import Planner, Policy
from fairlead.policies import registry
from fairlead.policies.fifo import FastestFirstFifo, FifoPlanner, FifoShares
from fairlead.policies.gavel_reference.las import ReleasedLas
from fairlead.policies.las import AgnosticLas, Las


def make(spec: str, profile: str = "default") -> Policy | Planner:
    return registry.make(spec, seed=4, profile=profile)


def test_another_name_is_shown_by_the_listed_one() -> None:
    assert registry.listed_name("max_min_fairness_perf") == "las_aware"
    assert registry.listed_name("shockwave:options.toml") == "shockwave:options.toml"
    to_basis = {one.name for one in registry.describe()}
    assert {registry.listed_name(name) for e in registry.BUILT_IN for name in e.aliases} <= to_basis


def test_names_and_aliases() -> None:
    assert isinstance(make("las"), AgnosticLas)
    assert isinstance(make("max_min_fairness"), AgnosticLas)
    assert make("las_aware") == make("max_min_fairness_perf") == Las()


def test_the_gavel_profile_has_policies_as_gavel_has_them() -> None:
    assert make("fifo", "gavel") == FifoShares(seed=4)
    assert isinstance(make("fifo_perf", "gavel"), FastestFirstFifo)
    assert make("las_aware", "gavel") == ReleasedLas()
    assert make("fifo") == FifoPlanner(4, heterogeneity_aware=False)
    assert make("fifo_perf") == FifoPlanner(4, heterogeneity_aware=True)


def test_every_policy_keeps_the_contract_and_has_a_program() -> None:
    for one in registry.describe():
        assert one.program
        assert one.source == "fairlead"
        if not one.argument:
            for profile in ("gavel", "default"):
                made = make(one.name, profile)
                assert isinstance(made, Policy) != isinstance(made, Planner)
                assert made.name == one.name


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("lass", "did you mean 'las'"),
        ("max_min_fairnes_perf", "did you mean 'max_min_fairness_perf'"),
        ("sfj", "did you mean 'sjf'"),
        ("nope", "'nope': no such policy, there are isolated, proportional, fifo"),
        ("", "no such policy, there are isolated, proportional, fifo"),
        ("las:3", "las takes nothing after a colon"),
        ("recorded", "recorded needs recorded:LOG"),
        ("recorded:", "recorded needs recorded:LOG"),
        ("gandiva:", "there is nothing after the colon"),
        ("recorded:nowhere", "nowhere: cannot be read"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(spec: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make(spec)


PLUGIN = '''
from fairlead.policies.isolated import Isolated


class Mine(Isolated):
    """x_ij = mine."""

    name = "mine"

    def __init__(self, request):
        self.seed = request.seed


class Broken:
    """Neither."""

    def __init__(self, request):
        pass


def ends(request):
    raise SystemExit(3)


def raises(request):
    raise ValueError("no weights")
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package on the path, with entry points of its own."""
    (tmp_path / "some_policies.py").write_text(PLUGIN)
    (tmp_path / "some_raising_policies.py").write_text("raise RuntimeError('no GPU')\n")
    info = tmp_path / "some_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fairlead.policies]\n"
        "mine = some_policies:Mine\n"
        "broken = some_policies:Broken\n"
        "gone = some_policies:Gone\n"
        "ends = some_policies:ends\n"
        "raises = some_policies:raises\n"
        "late = some_raising_policies:Late\n"
        "las = some_policies:Mine\n"
        "sjf = some_policies:Mine\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "some_policies", raising=False)


@pytest.mark.usefixtures("plugin")
def test_another_package_can_bring_policies() -> None:
    mine = make("mine")
    assert isinstance(mine, Policy)
    assert mine.name == "mine"
    assert getattr(mine, "seed", None) == 4
    with pytest.raises(ConfigError, match=r"returned <.*Broken object.*, which is neither"):
        make("broken")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make("gone")
    with pytest.raises(SolveError, match=r"'ends': entry point .*: ended the process .*, got 3 \("):
        make("ends")
    with pytest.raises(SolveError, match=r"'raises': entry point .*: ValueError: no weights \("):
        make("raises")
    with pytest.raises(ConfigError, match=r"'late': entry point .*: RuntimeError: no GPU \("):
        make("late")
    with pytest.raises(ConfigError, match="did you mean 'mine'"):
        make("mime")


@pytest.mark.usefixtures("plugin")
def test_who_has_the_name_of_a_built_in_policy_is_warned() -> None:
    message = "policy 'las' is the built-in one; the entry point of this name in some-policies is not used"
    with pytest.warns(FairleadWarning, match=message):
        assert make("las") == AgnosticLas()
    with pytest.warns(FairleadWarning, match="policy 'sjf' is the built-in one"):
        make("sjf")
    make("fifo")  # nobody else has that name
    with pytest.warns(FairleadWarning) as told:
        sources = [one.source for one in registry.describe() if one.name in ("las", "sjf")]
    assert sources == ["fairlead"]
    assert len(told) == 2


@pytest.mark.usefixtures("plugin")
@pytest.mark.filterwarnings("ignore::fairlead.errors.FairleadWarning")
def test_a_policy_that_cannot_be_loaded_does_not_spoil_the_list() -> None:
    found = {one.name: one for one in registry.describe()}
    assert found["mine"].program == "x_ij = mine."
    assert found["mine"].source == "some-policies"
    assert "cannot be loaded" in found["gone"].program


@pytest.mark.parametrize(
    ("spec", "reads"),
    [
        ("las", False),
        ("tiresias:100,promote=2", False),
        ("allox=0.5", False),
        ("partition:2:las", False),
        ("shockwave", False),
        ("shockwave:released", False),
        ("shockwave:/etc/x.toml", True),
        ("water_filling:e.toml", True),
        ("max_min_fairness_water_filling_perf=e.toml", True),
        ("recorded:log", True),
        ("partition:2:recorded:log", True),
        ("partition:2:partition:3:water_filling_packed:e.toml", True),
        ("somebody_elses:x", True),
        ("somebody_elses", False),
    ],
)
def test_policies_that_may_read_a_file_are_known(spec: str, reads: bool) -> None:
    assert registry.may_read_file(spec) == reads


def test_each_argument_that_is_a_file_is_said_to_be_one() -> None:
    """Of a policy that is added, too."""
    harmless = {"tiresias", "allox", "gandiva", "partition"}
    for entry in registry.BUILT_IN:
        assert not entry.argument or entry.names_file != (entry.name in harmless), entry.name
