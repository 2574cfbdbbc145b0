import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cluster.agent.cluster import (
    RunningAgent,
    Server,
    job,
    plain,
)
from tests.cluster.agent.conftest import Play

from fairlead.client.checkpoint import MANIFEST, Manifest
from fairlead.client.codec import encode_record
from fairlead.cluster.agent.addresses import RankZeroAddress, assign_addresses
from fairlead.cluster.agent.attempts import NodeAttempt
from fairlead.cluster.agent.devices import NodeDevices
from fairlead.cluster.agent.launch import (
    DirectoryError,
    LastAccess,
    LaunchSite,
    launch,
)
from fairlead.cluster.agent.lease import NodeLease
from fairlead.cluster.protocol.messages import Assignment, Rank

TORCH = (
    "import torch.distributed as d; d.init_process_group('gloo');"
    "d.barrier(); print('ranks', d.get_world_size()); d.destroy_process_group()"
)


def environments(state: Path, assignment: Assignment) -> list[dict[str, str]]:
    """Of the ranks that a node with four real GPUs of odd numbers would start."""
    devices = NodeDevices("h100", (1, 3, 5, 7), simulated_devices=False)
    place = LaunchSite(state, "10.0.0.1", str(state / "s"), devices, str(state / "client"))
    start = NodeAttempt(assignment, "secret", NodeLease(10.0), 0.0)
    given = assign_addresses(assignment, place.host)
    master = given.here or RankZeroAddress.parse(assignment.master, assignment.job)
    return [rank.env for rank in launch(place, start, master, LastAccess()).order.ranks]


def test_each_rank_sees_the_jobs_devices_here_and_its_own_by_its_local_rank(tmp_path: Path) -> None:
    ranks = (Rank(rank=2, devices=(3,)), Rank(rank=3, devices=(0,)))
    assignment = job(1, ranks=ranks, world_size=4, has_rank_0=False, node_rank=1, nodes=2)
    assignment = msgspec.structs.replace(assignment, master="10.0.0.2:29001:29002:word")
    first, second = environments(tmp_path, assignment)
    assert first["CUDA_VISIBLE_DEVICES"] == second["CUDA_VISIBLE_DEVICES"] == "7,1"
    assert (first["LOCAL_RANK"], second["LOCAL_RANK"]) == ("0", "1")
    assert (first["FAIRLEAD_DEVICES"], second["FAIRLEAD_DEVICES"]) == ("3", "0")
    assert (second["RANK"], second["WORLD_SIZE"], second["LOCAL_WORLD_SIZE"]) == ("3", "4", "2")
    assert (second["GROUP_RANK"], second["GROUP_WORLD_SIZE"]) == ("1", "2")
    assert (second["MASTER_ADDR"], second["MASTER_PORT"]) == ("10.0.0.2", "29001")
    assert second["FAIRLEAD_RANK_SYNC"] == "10.0.0.2:29002"


def test_one_rank_has_all_of_the_set_too(tmp_path: Path) -> None:
    (env,) = environments(tmp_path, job(1))
    wanted = {
        **{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        **{"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"},
    }
    assert {name: env[name] for name in wanted} == wanted
    assert 0 < int(env["MASTER_PORT"]) < 65536
    assert "FAIRLEAD_RANK_SYNC" not in env


@pytest.mark.torch
def test_torch_connects_a_job_of_one_rank(play: Play) -> None:
    pytest.importorskip("torch")

    async def scenario(server: Server, agent: RunningAgent) -> None:
        await server.order(plain(401, "python", "-W", "ignore", "-c", TORCH))
        ended = await server.until_state((401, 1), "ended")
        assert ended.completed, ended.reason
        assert await server.until_output(401, "ranks 1\n")

    play(scenario)


def test_the_agents_own_directory_is_no_jobs(tmp_path: Path) -> None:
    state = tmp_path / "agent"
    for path in (state, state / "logs" / "7", f"{state}/logs/../checkpoints/9"):
        with pytest.raises(DirectoryError, match="is in the agent's state directory; name another"):
            environments(state, job(1, checkpoint_dir=str(path)))
    assert not state.exists()
    environments(state, job(1))  # the agent's own choice for it
    environments(state, job(1, checkpoint_dir=str(tmp_path / "agent2")))


def test_a_job_that_has_saved_begins_only_where_its_checkpoints_are_or_its_owner_says_so(
    tmp_path: Path,
) -> None:
    """An empty directory, or one with old checkpoints, may be what its storage is mounted on."""
    mine = tmp_path / "mine"
    mine.mkdir()

    def try_it(kept_steps: int, **more: Any) -> list[dict[str, str]]:
        known: dict[str, Any] = {"checkpoint_dir": str(mine), "kept_steps": kept_steps}
        return environments(tmp_path / "agent", job(1, **known, **more))

    try_it(0)  # it has never saved
    (mine / "lost+found").mkdir()
    (mine / "lock").touch()  # as an attempt has left it that had not saved yet
    with pytest.raises(DirectoryError) as gone:
        try_it(40)
    assert str(gone.value).endswith(
        "has no checkpoints any more, with 40 steps gone (mount its storage, or put them back, "
        "or `fairlead resume 1 --accept-loss`)"
    )
    assert gone.value.of_checkpoints
    (mine / "step-000000000040").mkdir()  # damaged, for all that is known here
    try_it(40)
    try_it(39)
    with pytest.raises(
        DirectoryError, match="newest checkpoint is of step 40, 232 steps were kept"
    ):
        try_it(232)
    (env,) = try_it(232, accept_loss=True)
    assert env["FAIRLEAD_ACCEPT_LOSS"] == "1"
    (mine / ".step-000000000232.replaced").mkdir()  # it was killed between two renames
    try_it(232)
    shutil.rmtree(mine / ".step-000000000232.replaced")
    try_it(232, unmanaged=True)  # what it keeps there nobody else knows
    shutil.rmtree(mine)
    with pytest.raises(DirectoryError, match="is gone, with 232 steps"):
        try_it(232, unmanaged=True)
    with pytest.raises(DirectoryError, match=r"is gone, with 40 steps \(put it back, or `fairlead"):
        try_it(40)
    assert not mine.exists()
    try_it(40, accept_loss=True)
    assert mine.exists()


def test_a_job_goes_on_from_fewer_steps_where_a_later_attempt_of_it_saved_these(
    tmp_path: Path,
) -> None:
    """The server knows of an earlier one that had kept more, and has not heard of the later one since."""
    newest = tmp_path / "step-000000000040"
    newest.mkdir()

    def waits(saved_by: tuple[int, int], kept_by: int) -> bool:
        number, attempt = saved_by
        manifest = encode_record(Manifest(step=40, job=number, attempt=attempt))
        (newest / MANIFEST).write_text(manifest)
        known: dict[str, Any] = {
            "checkpoint_dir": str(tmp_path),
            "kept_steps": 60,
            "kept_by": kept_by,
        }
        try:
            environments(tmp_path / "agent", job(1, **known))
        except DirectoryError:
            return True
        return False

    assert not waits((1, 3), kept_by=2)
    assert waits((1, 2), kept_by=2)
    assert waits((1, 1), kept_by=2)
    assert waits((2, 3), kept_by=2), "of another job"
    assert waits((-1, 3), kept_by=2), "nobody knows of which"
    assert waits((1, 3), kept_by=0), "an earlier version did not note who kept them"
    (newest / MANIFEST).unlink()
    with pytest.raises(DirectoryError, match="60 steps were kept"):
        environments(
            tmp_path / "agent", job(1, checkpoint_dir=str(tmp_path), kept_steps=60, kept_by=2)
        )
