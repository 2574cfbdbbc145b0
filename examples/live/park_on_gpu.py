"""What it takes to park PyTorch models on your GPU: seconds to leave it and to come back, and memory freed.

    python examples/live/park_on_gpu.py [--turns 10]

Three models with random weights: a convolutional network of the size of ResNet-50, a transformer and an LSTM.
Each trains a few steps, is parked as ``TrainingState`` does it when its job is preempted, and comes back; the
weights must be the same to the bit. Nothing is downloaded, and no cluster is needed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from fairlead.client.torch import TrainingState

MIB = 1 << 20
Batch = tuple[torch.Tensor, ...]


class Block(nn.Module):
    """A bottleneck block of a residual network."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut = nn.Conv2d(inside, 4 * width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both ways."""
        return torch.relu(self.body(x) + self.shortcut(x))


def residual(scale: int) -> nn.Module:
    """Return a network like ResNet-50, with widths divided by ``scale``."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64 // scale, 7, 2, 3), nn.MaxPool2d(3, 2, 1)]
    inside = 64 // scale
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(blocks):
            layers.append(Block(inside, width // scale, stride if number == 0 else 1))
            inside = 4 * width // scale
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


class Sequences(nn.Module):
    """A model of sequences: an embedding, a body, and a score for each word."""

    def __init__(self, body: nn.Module, width: int, words: int) -> None:
        super().__init__()
        self.embedding, self.body = nn.Embedding(words, width), body
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores at the last place."""
        found = self.body(self.embedding(tokens))
        return self.head((found[0] if isinstance(found, tuple) else found)[:, -1])


def models(small: bool) -> dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch]]]:
    """Return for each name what makes the model, and what makes a batch for it."""
    scale, width, layers, words = (16, 32, 1, 100) if small else (1, 768, 12, 30_000)
    side, length, size = (32, 8, 2) if small else (224, 128, 16)

    def images() -> Batch:
        return torch.randn(size, 3, side, side), torch.randint(1000, (size,))

    def tokens() -> Batch:
        return torch.randint(words, (size, length)), torch.randint(words, (size,))

    def transformer() -> nn.Module:
        layer = nn.TransformerEncoderLayer(width, max(width // 64, 1), 4 * width, batch_first=True)
        return Sequences(nn.TransformerEncoder(layer, layers), width, words)

    def lstm() -> nn.Module:
        return Sequences(nn.LSTM(width, width, 2, batch_first=True), width, words)

    return {
        "residual": (lambda: residual(scale), images),
        "transformer": (transformer, tokens),
        "LSTM": (lstm, tokens),
    }


def allocated(device: torch.device) -> int:
    """Return the bytes that PyTorch has taken of a device."""
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


def synchronise(device: torch.device) -> None:
    """Wait until the device has done all that it was told to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> int:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, to see whether it runs")
    given = parser.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(
            "park_on_gpu.py: PyTorch finds no GPU here (--device cpu runs without)", file=sys.stderr
        )
        return 2
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the processor"
    print(f"PyTorch {torch.__version__} on {name}, medians of {given.turns} turns")
    print(f"{'model':12}{'park':>9}{'resume':>9}{'in use':>12}{'while parked':>14}")
    for kind, (make, batch) in models(given.small).items():
        model = make().to(device)
        optimizer = torch.optim.Adam(model.parameters())
        state = TrainingState(model=model, optimizer=optimizer)
        park_s, resume_s, used, left = [], [], 0, 0
        for _ in range(given.turns):
            x, y = (part.to(device) for part in batch())
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            del x, y
            before = [weight.detach().cpu().clone() for weight in model.parameters()]
            synchronise(device)
            used = max(used, allocated(device))
            began = time.perf_counter()
            state.park()
            parked = time.perf_counter()
            left = max(left, allocated(device))
            state.resume()
            synchronise(device)
            park_s.append(parked - began)
            resume_s.append(time.perf_counter() - parked)
            for weight, saved in zip(model.parameters(), before, strict=True):
                if not torch.equal(weight.detach().cpu(), saved):
                    print(f"{kind}: the weights have changed", file=sys.stderr)
                    return 1
        times = (
            f"{1e3 * statistics.median(park_s):6.0f} ms{1e3 * statistics.median(resume_s):6.0f} ms"
        )
        print(f"{kind:12}{times}{used // MIB:8,} MiB{left // MIB:10,} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
