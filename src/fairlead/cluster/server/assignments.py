"""The orders that nodes get: an attempt, as far as a node is concerned."""

from fairlead.cluster.protocol.messages import Assignment
from fairlead.cluster.server.array_tasks import task_variables, trial_variables
from fairlead.cluster.server.attempts import Attempt


def assignment(attempt: Attempt, node: str, checkpoint_s: float) -> Assignment:
    """Return the order for one of the nodes of an attempt. checkpoint_s: seconds between its checkpoints."""
    row, spec, first = attempt.row, attempt.row.spec, attempt.first_node
    return Assignment(
        job=row.id,
        attempt=attempt.record.attempt,
        order_id=attempt.record.order_id,
        command=spec.command,
        env=spec.env | task_variables(row) | trial_variables(row),
        cwd=spec.cwd,
        checkpoint_dir=row.checkpoint_dir,
        kept_steps=row.kept_steps(attempt.from_step),
        kept_by=row.saved_by,
        accept_loss=bool(attempt.record.loss_accepted),
        ranks=attempt.nodes[node],
        world_size=sum(len(ranks) for ranks in attempt.nodes.values()),
        master="" if node == first else attempt.address,
        has_rank_0=node == first,
        unmanaged=spec.unmanaged,
        total_steps=int(row.total_steps),
        batch=row.batch,
        checkpoint_s=checkpoint_s,
        grace_s=spec.grace_s,
        finish_grace_s=-1.0 if spec.finish_grace_s is None else spec.finish_grace_s,
        finishing=attempt.finishing,
        prefork=spec.prefork is True,
        prepare=spec.prefork == "auto",
        log_bytes=spec.log_bytes,
        start_timeout_s=spec.start_timeout_s,
        stall_timeout_s=spec.stall_timeout_s,
        on_stall=spec.on_stall,
        usual_start_s=row.usual_start_s,
        usual_save_s=row.save_s if row.save_s > 0 else -1.0,
        inspect=attempt.stalled and node != first,
        runtime=spec.runtime,
        progress_url=spec.progress_url,
        node_rank=list(attempt.nodes).index(node),
        nodes=len(attempt.nodes),
        colocated=attempt.colocated,
        tenant=row.tenant,
        user=row.user,
        park=spec.park is True and not spec.devices,  # its ranks are of one number of devices
        suspend=spec.is_suspended,
        resumes=attempt.resumes,
        standby=attempt.standby,
    )
