"""A model in Lightning."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fairlead.client.lightning import FairleadCallback


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)

    def on_train_epoch_end(self) -> None:
        print(f"epoch {self.current_epoch}", flush=True)


torch.manual_seed(0)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = Model()
fairlead = FairleadCallback()
options = {"max_epochs": 3, "logger": False, "enable_checkpointing": False}
trainer = lightning.Trainer(**options, callbacks=[fairlead])
trainer.fit(model, loader, ckpt_path=fairlead.ckpt_path)
print(f"done: {sum(p.double().sum().item() for p in model.parameters()):.17g}", flush=True)
