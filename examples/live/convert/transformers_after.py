"""A model under the Trainer of Hugging Face's transformers."""

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from fairlead.client.transformers import FairleadCallback


class Points(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int):
        x = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return {"x": x, "labels": x.sum(0, keepdim=True)}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def forward(self, x, labels):
        return {"loss": nn.functional.mse_loss(self.layers(x), labels)}


torch.manual_seed(0)
model = Model()
arguments = TrainingArguments("out", num_train_epochs=3, save_strategy="no", report_to=[])
trainer = Trainer(model=model, args=arguments, train_dataset=Points())
fairlead = FairleadCallback(trainer)
trainer.train(resume_from_checkpoint=fairlead.checkpoint)
print(f"done: {sum(p.double().sum().item() for p in model.parameters()):.17g}", flush=True)
