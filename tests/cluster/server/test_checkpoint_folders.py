"""Every job has a folder of checkpoints that no other job has ever had."""

from pathlib import Path

from tests.cluster.server_nodes import engine_nodes


def _folder_of_the_first_job(state: Path, checkpoints: Path) -> Path:
    with engine_nodes(state, checkpoints=checkpoints) as cluster:
        one = cluster.node("one")
        one.register()
        job = cluster.submit()
        found = cluster.until(
            lambda: [a.checkpoint_dir for a in one.report().desired if a.job == job]
        )
        assert job == 0
        return Path(found[0])


def test_another_cluster_with_the_same_checkpoints_never_loads_those_of_a_job_of_the_same_id(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    folders = [_folder_of_the_first_job(tmp_path / name, shared) for name in ("one", "two")]
    assert len(set(folders)) == 2
    for folder in folders:
        assert folder.parent == shared
        assert folder.name.partition("-")[0] == "0"
