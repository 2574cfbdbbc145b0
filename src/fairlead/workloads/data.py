"""Data sets of the workloads: read from a folder, or generated in the same shapes."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from fairlead.errors import InputError

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png"}
GENERATED_SAMPLES = 256  # different ones of a generated data set, whatever its length
DECODING_THREADS = 8
PADDING, UNKNOWN, BEGIN, END = range(4)  # numbers of the words that are none
MARKS = 4  # of them


class Dataset(Protocol):
    """A data set: ``samples[rows]`` are the tensors of these samples, each (len(rows), ...)."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]: ...


class TensorDataset:
    """Samples that are in memory. length: where it is more than the tensors have, they are repeated."""

    def __init__(self, *tensors: torch.Tensor, length: int | None = None) -> None:
        self._tensors = tensors
        self._length = length or len(tensors[0])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor[rows % len(tensor)] for tensor in self._tensors)


class ImageFiles:
    """Images of files, decoded when they are asked for: (n, 3, side, side) bytes."""

    def __init__(self, paths: Sequence[Path], side: int) -> None:
        self._paths, self._side = paths, side
        self._images = _pillow(paths[0].parent)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        paths = [self._paths[row] for row in rows.tolist()]
        with ThreadPoolExecutor(DECODING_THREADS) as threads:
            return (torch.stack(list(threads.map(self._decode, paths))),)

    def _decode(self, path: Path) -> torch.Tensor:
        """The square in the middle, scaled."""
        try:
            with self._images.open(path) as file:
                image = file.convert("RGB")
        except OSError as problem:
            raise InputError(f"{path}: cannot be read as an image: {problem}") from None
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        square = image.crop((left, top, left + side, top + side))
        pixels = np.asarray(square.resize((self._side, self._side)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


class LabelledImages:
    """Images of files with the numbers of their classes."""

    def __init__(self, images: Dataset, labels: torch.Tensor) -> None:
        self._images, self._labels = images, labels

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *self._images[rows], self._labels[rows]


class UnpairedDataset:
    """Samples of two domains: of the first by rows, each with one of the second that is drawn."""

    def __init__(self, first: Dataset, second: Dataset) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first)

    def __getitem__(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        drawn = torch.randint(len(self._second), rows.shape)
        return *self._first[rows], *self._second[drawn]


class SetDataset:
    """Samples that are sets of items, as rows of 0 and 1 (n, items). starts: (samples + 1,) where in
    ``members`` the items of each begin."""

    def __init__(
        self, starts: torch.Tensor, members: torch.Tensor, items: int, length: int | None = None
    ) -> None:
        self._starts, self._members, self._items = starts, members, items
        self._length = length or len(starts) - 1

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sets = rows % (len(self._starts) - 1)
        first, counts = self._starts[sets], self._starts[sets + 1] - self._starts[sets]
        owners = torch.repeat_interleave(torch.arange(len(rows)), counts)
        offsets = torch.arange(len(owners)) - torch.repeat_interleave(
            counts.cumsum(0) - counts, counts
        )
        dense = torch.zeros(len(rows), self._items)
        dense[owners, self._members[first[owners] + offsets]] = 1.0
        return (dense,)


def read_cifar(folder: Path) -> TensorDataset:
    """Return the training images and labels of CIFAR-10: its Python batches ``data_batch_1`` to ``_5``."""
    parts = [_read_batch(_file(folder, f"data_batch_{i}")) for i in range(1, 6)]
    pixels = np.concatenate([part[b"data"] for part in parts]).reshape(-1, 3, 32, 32)
    labels = [label for part in parts for label in part[b"labels"]]
    return TensorDataset(torch.from_numpy(pixels), torch.tensor(labels))


def read_image_classes(folder: Path, side: int) -> tuple[LabelledImages, int]:
    """Return the images of a folder that has a folder for each class, and the number of classes."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    if not classes:
        raise InputError(f"{folder}: expected a folder of images for each class, there is none")
    files = [(path, label) for label, one in enumerate(classes) for path in image_paths(one)]
    labels = torch.tensor([label for _, label in files])
    return LabelledImages(ImageFiles([path for path, _ in files], side), labels), len(classes)


def image_paths(folder: Path) -> list[Path]:
    """Return the images in a folder, by name. Raises InputError where there is none."""
    found = folder.is_dir() and sorted(
        path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES
    )
    if not found:
        raise InputError(f"{folder}: expected a folder of .jpg or .png images, there is none")
    return found


def read_lines(folder: Path, name: str) -> list[list[str]]:
    """Return the words of each line of a text file."""
    path = _file(folder, name)
    try:
        return [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as problem:
        raise InputError(f"{path}: expected text in UTF-8: {problem}") from None


def number_words(lines: Iterable[Sequence[str]], limit: int) -> dict[str, int]:
    """Return a number for each of the most frequent words, after those of the marks (padding, ...); ``limit``
    numbers at most."""
    counts = Counter(word for line in lines for word in line)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: limit - MARKS]
    return {word: number for number, word in enumerate(ranked, start=MARKS)}


def read_ratings(folder: Path, least: float) -> tuple[SetDataset, int]:
    """Return each user's set of items that they rated ``least`` or better, and the number of items.

    The file is ``ratings.csv``: a header, then lines of user, item, rating and whatever else.
    """
    path = _file(folder, "ratings.csv")
    try:
        table = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 1, 2), ndmin=2)
    except ValueError as problem:
        raise InputError(f"{path}: expected lines of user,item,rating: {problem}") from None
    liked = table[table[:, 2] >= least] if len(table) else table.reshape(0, 3)
    if not len(liked):
        raise InputError(f"{path}: expected ratings of {least:g} or better, there is none")
    liked = liked[np.argsort(liked[:, 0], kind="stable")]
    _, counts = np.unique(liked[:, 0], return_counts=True)
    items, members = np.unique(liked[:, 1], return_inverse=True)
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
    return SetDataset(starts, torch.from_numpy(members), len(items)), len(items)


def generate_images(length: int, side: int, classes: int, labelled: bool = True) -> TensorDataset:
    """Return noise around a colour for each class, and the classes, unless they are not wanted."""
    count = min(length, GENERATED_SAMPLES)
    labels = torch.arange(count) % classes
    colours = torch.randint(64, 192, (classes, 3, 1, 1), dtype=torch.int16)
    noise = torch.randint(-64, 64, (count, 3, side, side), dtype=torch.int16)
    images = (colours[labels] + noise).to(torch.uint8)
    return TensorDataset(*((images, labels) if labelled else (images,)), length=length)


def generate_words(length: int, words: int, vocabulary: int) -> torch.Tensor:
    """Return (samples, words) numbers without marks, each following from the one before with some slips."""
    count = min(length, GENERATED_SAMPLES)
    follows = torch.randint(MARKS, vocabulary, (vocabulary,))
    text = torch.randint(MARKS, vocabulary, (count, words))
    slips = torch.rand(count, words) < 0.1
    for i in range(1, words):
        text[:, i] = torch.where(slips[:, i], text[:, i], follows[text[:, i - 1]])
    return text


def generate_sets(length: int, items: int, members: int) -> SetDataset:
    """Return sets of so many items each, popular ones more often."""
    count = min(length, GENERATED_SAMPLES)
    drawn = (torch.rand(count * members).square() * items).long()
    return SetDataset(torch.arange(count + 1) * members, drawn, items, length=length)


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise InputError(f"{folder}: expected the file {name}, there is none")
    return path


class _ArrayUnpickler(pickle.Unpickler):
    """Reads arrays and plain data; code that a file might name is not run."""

    allowed = ("_reconstruct", "ndarray", "dtype")

    def find_class(self, module: str, name: str) -> Any:
        if (module.split(".")[0] == "numpy" and name in self.allowed) or (module, name) == (
            "_codecs",
            "encode",
        ):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _read_batch(path: Path) -> dict[bytes, Any]:
    try:
        with path.open("rb") as file:
            batch: dict[bytes, Any] = _ArrayUnpickler(file, encoding="bytes").load()
        if {b"data", b"labels"} <= set(batch):
            return batch
    except (pickle.UnpicklingError, EOFError, TypeError, ValueError) as problem:
        raise InputError(f"{path}: expected a Python batch of CIFAR-10: {problem}") from None
    raise InputError(f"{path}: expected a Python batch of CIFAR-10, with data and labels")


def _pillow(folder: Path) -> Any:
    try:
        return import_module("PIL.Image")
    except ModuleNotFoundError:
        raise InputError(f"{folder}: images need Pillow, which is not installed here") from None
