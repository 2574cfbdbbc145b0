import numpy as np

from fairlead.model.commands import JobEnd
from fairlead.scheduler.core.lifecycle import PHASE_OF_END, JobPhase, phases_of_ends


def test_every_end_leads_to_the_phase_of_its_name() -> None:
    assert {end: phase.name for end, phase in PHASE_OF_END.items()} == {e: e.name for e in JobEnd}
    ends = np.array([JobEnd.KILLED, JobEnd.COMPLETED])
    assert phases_of_ends(ends).tolist() == [JobPhase.KILLED, JobPhase.COMPLETED]
    assert not len(phases_of_ends(np.zeros(0, np.int64)))
