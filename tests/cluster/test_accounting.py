"""Accounting of a real cluster: against its attempts, through restarts, as table and files."""

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest
from tests.call_command import call
from tests.cluster.cluster import running, until

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec


def submit_and_wait(client: Client, count: int, **more: object) -> list[int]:
    spec = JobSpec(
        command=("sleep", "0.2"),
        total_steps=1,
        unmanaged=True,
        rates={"v100": 5.0},
        **more,  # type: ignore[arg-type]
    )
    ids = client.submit([spec] * count)
    until(lambda: all(client.job(job).state == "completed" for job in ids))
    return ids


def test_figures_are_those_of_the_attempts_and_survive_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--prices", "v100=3600")
    with running(tmp_path, options, agents={"n": "v100=2"}) as cluster:
        with cluster.client() as admin:
            ann, bob = (
                admin.add_user(name, tenant, "user")
                for name, tenant in (("ann", "a"), ("bob", "b"))
            )
        with cluster.client(ann) as client:
            of_ann = submit_and_wait(client, 2)
        with cluster.client(bob) as client:
            of_bob = submit_and_wait(client, 1, scale_factor=2)

        def billed(jobs: list[int]) -> int:
            with cluster.client() as admin:
                return sum(
                    (round(one.ended_s * 1000) - round((one.began_s + max(one.wait_s, 0.0)) * 1000))
                    * len(one.devices)
                    for job in jobs
                    for one in admin.attempts(job)
                    if one.ended_s is not None
                )

        with cluster.client() as admin, cluster.client(ann) as client:
            view = admin.accounting(("tenant", "user", "type"))
            assert [(row.tenant, row.user, row.type) for row in view.rows] == [
                ("a", "ann", "v100"),
                ("b", "bob", "v100"),
            ]
            for row, jobs in zip(view.rows, (of_ann, of_bob), strict=True):
                assert abs(row.device_ms - billed(jobs)) <= 2 * len(jobs)  # wall clock, rounded
                assert row.cost_micros == row.device_ms * 1000
                assert row.attempts == len(jobs)
            assert [row.tenant for row in client.accounting(("tenant",)).rows] == ["a"]
            assert client.accounting().total.device_ms == view.rows[0].device_ms
        cluster.kill()
        cluster.start()
        with cluster.client() as admin:
            again = admin.accounting(("tenant", "user", "type"))
        assert [row.attempts for row in again.rows] == [row.attempts for row in view.rows]
        for row, before in zip(again.rows, view.rows, strict=True):
            assert abs(row.device_ms - before.device_ms) <= 10
        token = ("--server", cluster.url, "--token-file", cluster.state / "admin.token")
        capsys.readouterr()
        assert call("accounting", *token) == 0
        assert "total" in capsys.readouterr().out
        assert call("accounting", *token, "--by", "tenant,day", "--csv") == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert list(rows[0]) == [
            "day", "tenant", "device_ms", "device_hours", "cost", "cost_micros", "attempts",
        ]  # fmt: skip
        assert sum(int(row["attempts"]) for row in rows) == 3
        assert call("accounting", *token, "--by", "user", "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert [row["user"] for row in told["rows"]] == ["ann", "bob"]
        file = tmp_path / "usage.parquet"
        assert call("accounting", *token, "--by", "type,day", "--parquet", file) == 0
        frame = pl.read_parquet(file)
        assert frame["attempts"].sum() == 3
        assert frame.schema["day"] == pl.Date
        assert call("accounting", *token, "--by", "day,week") == 2
        assert call("accounting", *token, "--csv", "--json") == 2
