"""The note that a restore leaves in the state of a cluster, for the next server to act on."""

import time

import msgspec

ATTEMPTS = 10_000  # numbers at least that a restore leaves out, for attempts that a job had since
RESTORED = "restored"  # key of the note in the table meta, until a server has acted on it
FROM_BACKUP = "the cluster was restored from a backup"
LOSS_ACCEPTED = "the cluster goes on from a state whose newest commits may be lost"


class RestoreNote(msgspec.Struct, frozen=True, kw_only=True):
    """When that was, and the last commit that is known."""

    time_s: float  # wall clock
    commit: int
    backup_s: float = 0.0  # when that commit was made, wall clock; 0 = not told
    loss_accepted: bool = False  # no backup: it goes on with what it has

    @property
    def what(self) -> str:
        """Return what was done, as a sentence without a full stop."""
        return LOSS_ACCEPTED if self.loss_accepted else FROM_BACKUP

    def why(self, started: bool) -> str:
        """Return why a job waits, as a sentence without a full stop. started: it has run before."""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.backup_s))
        of = f"; the newest that it has is of {at}" if self.loss_accepted else f" of {at}"
        of = of if self.backup_s else ""
        goes_on = "; the job starts again from its newest checkpoint" if started else ""
        return f"{self.what}{of}{goes_on}"
