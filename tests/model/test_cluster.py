"""What nobody can change of a cluster."""

import numpy as np
import pytest

from fairlead.model.cluster import Cluster


@pytest.mark.parametrize("name", ["capacity", "price", "device_node", "device_type"])
def test_nobody_can_write_the_arrays_of_a_cluster(name: str) -> None:
    cluster = Cluster.of({"fast": 4, "slow": 2}, 2)
    array: np.ndarray[tuple[int], np.dtype[np.float64]] = getattr(cluster, name)
    with pytest.raises(ValueError, match="read-only"):
        array[:] = 50
