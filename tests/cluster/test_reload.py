"""A running server takes over what its configuration file says now."""

import signal
from pathlib import Path

import pytest
from tests.call_command import call
from tests.cluster.cluster import running, until

from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.cluster.server.runtime_options import RereadOptions, RuntimeOptions
from fairlead.cluster.server.runtime_reload import RuntimeReload
from fairlead.errors import InputError

SPEC = JobSpec(command=("true",), total_steps=10, rates={"v100": 2.0})


def test_a_reload_by_request_and_by_signal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.toml"
    path.write_text('tenant_jobs = 2\nprices = "v100=1"\n')
    with running(tmp_path, ("--config", str(path))) as cluster, cluster.client() as admin:
        ann = admin.add_user("ann", "apes", "user")
        with cluster.client(ann) as client:
            client.submit([SPEC, SPEC])
            with pytest.raises(InputError, match="may have 2 jobs"):
                client.submit([SPEC])
            with pytest.raises(InputError, match="admin"):
                client.reload()

            path.write_text('tenant_jobs = 3\nprices = "v100=2"\nheartbeat = 0.5\nseed = 3\n')
            token = ("--server", cluster.url, "--token-file", cluster.state / "admin.token")
            assert call("reload", *token) == 0
            told = capsys.readouterr().out
            assert told == "changed: tenant_jobs, prices\nneeds a restart: seed\n"
            client.submit([SPEC])
            until(lambda: admin.accounting().prices == {"v100": 2.0})

            path.write_text("tenant_jobs = 9\nsolve_limit = -1\n")
            with pytest.raises(InputError, match=r"server.toml:2: solve_limit: .*got -1"):
                admin.reload()
            with pytest.raises(InputError, match="may have 3 jobs"):
                client.submit([SPEC])

            assert cluster.server is not None
            cluster.server.send_signal(signal.SIGHUP)
            until(lambda: "stays as it was" in cluster.log())
            path.write_text("tenant_jobs = 4\n")
            cluster.server.send_signal(signal.SIGHUP)
            until(lambda: "SIGHUP: changed: tenant_jobs, prices" in cluster.log())
            client.submit([SPEC])
        done = admin.audit(action="reload").entries
        assert [(one.user, one.outcome) for one in done[:3]] == [
            ("ann", "refused"),
            ("admin", "accepted"),
            ("admin", "refused"),
        ]
        assert done[-1].source == "local"
        assert cluster.server.poll() is None


def test_a_signal_before_the_state_is_found_is_kept_for_later(tmp_path: Path) -> None:
    taken: list[RuntimeOptions] = []
    later = RuntimeOptions(tenant_jobs=2)
    reload = RuntimeReload(
        tmp_path,
        RuntimeOptions(tenant_jobs=1),
        lambda: RereadOptions(runtime=later, needs_restart=()),
        taken.append,
    )
    assert reload.reload().changed == ["tenant_jobs"]
    assert taken == []
    reload.apply()
    assert taken == [later]
