"""Data-parallel training: a process per device, connected by ``env://`` (torchrun, or Fairlead)."""

import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from fairlead.client.torch import TrainingState

torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rank = int(os.environ["RANK"])

torch.manual_seed(0)
x = torch.randn(64, 4)
data = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(rank)
state = TrainingState(model=model, optimizer=optimizer)
batches = state.iterator(loader, epochs=3)

for epoch in batches.epochs():
    sampler.set_epoch(epoch)
    for inputs, targets in batches:
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch} loss {loss:.6f}", flush=True)
if rank == 0:
    print(f"done: {sum(p.double().sum().item() for p in model.parameters()):.17g}", flush=True)
torch.distributed.destroy_process_group()
