"""Three epochs over the loader of torchdata, which keeps its own state."""

import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from fairlead.client.torch import TrainingState

torch.manual_seed(0)
x = torch.randn(64, 4)
loader = StatefulDataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
state = TrainingState(model=model, optimizer=optimizer)
batches = state.iterator(loader, epochs=3)

for epoch in batches.epochs():
    for inputs, targets in batches:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss:.6f}", flush=True)
print(f"done: {sum(p.double().sum().item() for p in model.parameters()):.17g}", flush=True)
