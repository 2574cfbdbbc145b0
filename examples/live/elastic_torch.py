"""Image classification in PyTorch on any number of ranks: a small CNN on generated images.

The batch is stated once, for all ranks together. The job may be stopped and go on with another number of
devices at any step: it trains on the same samples in the same steps, and ends with the same weights, up to
rounding.

    torchrun --nproc-per-node 4 examples/live/elastic_torch.py --checkpoint-dir /tmp/elastic   (stop it)
    torchrun --nproc-per-node 2 examples/live/elastic_torch.py --checkpoint-dir /tmp/elastic   (goes on)
    python examples/live/elastic_torch.py --checkpoint-dir /tmp/elastic                        (on one)
"""

import argparse

import torch
from images_torch import cnn, images
from torch import nn
from torch_parts import device, fingerprint, join_ranks, leave_ranks

from fairlead.client.torch import ElasticLoader, TrainingState


def main() -> None:
    """Train."""
    options = parse()
    rank, world_size = join_ranks()
    torch.manual_seed(options.seed)
    data = torch.utils.data.TensorDataset(*images(options.images, options.dtype))
    bare = cnn().to(device(), options.dtype)
    model = bare
    if world_size > 1:  # find_unused_parameters: to the last bit, at the same number of ranks
        model = nn.parallel.DistributedDataParallel(bare, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)

    state = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler)
    loader = ElasticLoader(
        data,
        batch_size=options.batch,
        shuffle=True,
        seed=options.seed,
        max_local_batch=options.max_local_batch,
    )
    batches = state.iterator(loader, epochs=options.epochs, checkpoint_dir=options.checkpoint_dir)
    if rank == 0:
        print(f"ranks: {world_size}, micro-batches: {loader.accumulation}", flush=True)
    for epoch in batches.epochs():
        for batch in batches:
            optimizer.zero_grad()
            loss = torch.zeros((), dtype=options.dtype, device=device())  # this rank's
            for (x, y), weight in batch.micro_batches(model):
                part = nn.functional.cross_entropy(model(x.to(device())), y.to(device())) * weight
                part.backward()
                loss += part.detach()
            optimizer.step()
        scheduler.step()
        if world_size > 1:
            torch.distributed.all_reduce(loss)
        if rank == 0:
            print(f"epoch {epoch} loss {loss / world_size:.4f}", flush=True)
    if rank == 0:
        print(f"done: {batches.step} steps, weights {fingerprint(bare)}", flush=True)
    leave_ranks()


def parse() -> argparse.Namespace:
    """The command line."""
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = about.add_argument
    add("--epochs", type=int, default=6)
    add("--images", type=int, default=500, help="in the generated data set")
    add("--batch", type=int, default=32, help="images per step, all ranks together")
    add("--max-local-batch", type=int, help="images that a rank can compute at once")
    add("--lr", type=float, default=0.02)
    add("--dtype", type=lambda name: getattr(torch, name), default=torch.float32)
    add("--seed", type=int, default=0)
    add("--checkpoint-dir", help="where to save, unless the scheduler says")
    return about.parse_args()


if __name__ == "__main__":
    main()
