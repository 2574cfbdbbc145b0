"""Image classification: augmentation in workers, a learning rate schedule, mixed precision, validation."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from fairlead.client.torch import TrainingState

EPOCHS = 3
device = "cuda" if torch.cuda.is_available() else "cpu"


class Images(Dataset):
    """Bright corners under noise; shifted at random when trained on."""

    def __init__(self, count: int, train: bool) -> None:
        noise = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(count))
        self.labels = torch.arange(count) % 4
        self.images, self.train = noise, train
        for image, label in zip(noise, self.labels):
            top, left = divmod(int(label), 2)
            image[:, 4 * top : 4 * top + 4, 4 * left : 4 * left + 4] += 1.0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int):
        image = self.images[index]
        if self.train:
            image = image.roll(int(torch.randint(-1, 2, ())), dims=2)
        return image, self.labels[index]


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    with torch.no_grad():
        right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


torch.manual_seed(0)
loader = DataLoader(Images(48, True), batch_size=8, shuffle=True, num_workers=2, drop_last=True)
validation = DataLoader(Images(32, False), batch_size=16)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
state = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
batches = state.iterator(loader, epochs=EPOCHS)

for epoch in batches.epochs():
    for images, labels in batches:
        with torch.autocast(device, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    scheduler.step()
    print(f"epoch {epoch} accuracy {evaluate(model, validation):.3f}", flush=True)
print(f"done: {sum(p.double().sum().item() for p in model.parameters()):.17g}", flush=True)
