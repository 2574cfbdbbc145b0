"""Metrics are kept of an attempt only as the node of its rank 0 tells them, and shown to its tenant."""

import asyncio
from pathlib import Path

import pytest
from tests.cluster.server_nodes import ADMIN, engine_nodes

from fairlead.cluster.front.facade import NotFoundError
from fairlead.cluster.front.job_metrics import MetricService
from fairlead.cluster.front.logs import LogService
from fairlead.cluster.front.web.curves import NamedCurve, curves_picture, metrics_section
from fairlead.cluster.protocol.access import Caller
from fairlead.cluster.protocol.messages import MetricChunk
from fairlead.cluster.protocol.metrics import MetricCurve

LINE = b'{"step": %d, "metrics": {"loss": 0.5}}\n'


@pytest.mark.parametrize("wrong", [{"node": "b"}, {"attempt": 2}, {"job": 7}])
def test_metrics_of_others_are_not_kept(tmp_path: Path, wrong: dict[str, int | str]) -> None:
    with engine_nodes(tmp_path) as cluster:
        node = cluster.node("a")
        node.register()
        job = cluster.submit()
        cluster.until(lambda: (job, 1) in node.statuses, "its order, which is durable")
        metrics = MetricService(tmp_path, LogService(tmp_path))
        right = {"node": "a", "incarnation": "one.1", "job": job, "attempt": 1}

        def put(step: int, offset: int, **more: int | str) -> int:
            chunk = MetricChunk(**(right | more), offset=offset, data=LINE % step)  # type: ignore[arg-type]
            return asyncio.run(metrics.put(chunk)).offset

        size = len(LINE % 1)
        assert put(1, 0) == size
        assert put(5, size, **wrong) == 2 * size, "it is not asked for again"
        assert put(2, size) == 2 * size
        (curve,) = metrics.read(ADMIN, job)
        assert curve.steps == [1, 2]
        with pytest.raises(NotFoundError):
            metrics.read(Caller("eve", "others", "user"), job)
        metrics.close()


def curve(steps: list[int], values: list[float], name: str = "loss") -> MetricCurve:
    return MetricCurve(
        name=name,
        steps=steps,
        times_s=[0.0] * len(steps),
        values=values,
        last=values[-1],
        last_step=steps[-1],
    )


def test_a_curve_is_drawn_with_its_last_value() -> None:
    section = metrics_section([curve([1, 2, 4], [1.0, 0.5, 0.25])])
    assert not section.hidden
    assert "loss: 0.25 at step 4" in str(section.body)
    assert str(section.body).count("<polyline") == 1
    assert metrics_section([]).hidden


@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], [-1.7e308, 1.7e308], [1e-300, 2e-300]])
def test_any_values_make_a_picture(values: list[float]) -> None:
    drawn = curves_picture([NamedCurve("a <b>", curve([*range(len(values))], values))], "x")
    assert "nan" not in str(drawn)
    assert "inf" not in str(drawn)
    assert "a &lt;b&gt;" in str(drawn)
