"""A question is refused for what a submission is refused for."""

from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.protocol.api_models import WhatIf
from fairlead.cluster.protocol.job_spec import JobSpec
from fairlead.errors import ConfigError


def test_a_family_that_is_not_known_is_refused(tmp_path: Path) -> None:
    spec = JobSpec(command=("true",), total_steps=1, family="nosuch")
    with (
        engine_nodes(tmp_path) as cluster,
        pytest.raises(ConfigError, match="family: 'nosuch' is not in the throughput table"),
    ):
        cluster.service.what_if(ADMIN, WhatIf(add_jobs=(spec,)))
