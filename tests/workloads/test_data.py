"""Data sets that are read from folders, and generated ones."""

import importlib.util
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.errors import InputError
from fairlead.workloads.registry import WORKLOADS

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
    ),
]


def write_cifar(folder: Path) -> None:
    generator = np.random.default_rng(0)
    for i in range(1, 6):
        pixels = generator.integers(0, 256, (4, 3072), dtype=np.uint8)
        batch = {b"data": pixels, b"labels": [0, 3, 9, i], b"batch_label": b"part"}
        (folder / f"data_batch_{i}").write_bytes(pickle.dumps(batch, protocol=2))


def write_images(folder: Path, count: int = 3) -> None:
    images: Any = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    folder.mkdir(parents=True)
    for i in range(count):
        images.new("RGB", (70, 50 + i), (200, 10 * i, 0)).save(folder / f"{i}.png")
    (folder / "notes.txt").write_text("no image")


def write_classes(folder: Path) -> None:
    for name in ("cat", "dog"):
        write_images(folder / name)


def write_domains(folder: Path) -> None:
    write_images(folder / "trainA", 2)
    write_images(folder / "trainB", 3)


def write_text(folder: Path) -> None:
    text = "the cat sat on the mat , the end .\n" * 40
    (folder / "wiki.train.tokens").write_text(text)


def write_pairs(folder: Path) -> None:
    (folder / "train.de").write_text("ein Hund\nzwei Katzen laufen\n" * 10)
    (folder / "train.en").write_text("a dog\ntwo cats run\n" * 10)


def write_ratings(folder: Path) -> None:
    lines = [f"{user},{item},{3 + (user + item) % 3},0" for user in range(9) for item in range(12)]
    (folder / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *lines]))


WRITERS: dict[str, Callable[[Path], None]] = {
    "resnet18": write_cifar,
    "resnet50": write_classes,
    "cyclegan": write_domains,
    "lm": write_text,
    "transformer": write_pairs,
    "recommendation": write_ratings,
}


def build(name: str, folder: Path | None = None) -> Any:
    from fairlead.workloads.parts import BuildOptions

    return WORKLOADS[name].build(BuildOptions(data=folder, small=True))


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_is_read_and_has_the_shapes_of_generated_data(name: str, tmp_path: Path) -> None:
    import torch

    WRITERS[name](tmp_path)
    parts, generated = build(name, tmp_path), build(name)
    rows = torch.tensor([0, 2, 1])
    loss = parts.model(*parts.samples[rows])
    loss.backward()
    assert torch.isfinite(loss)
    for read, made in zip(parts.samples[rows], generated.samples[rows], strict=True):
        assert (read.dtype, read.ndim, len(read)) == (made.dtype, made.ndim, 3)
        if name not in (
            "transformer",
            "recommendation",
        ):  # as long as sentences are, as items there are
            assert read.shape == made.shape


def test_ratings_become_sets_of_what_users_like(tmp_path: Path) -> None:
    import torch

    from fairlead.workloads.data import read_ratings

    lines = ["user,item,rating,time", "7,30,5,0", "3,10,4,0", "7,10,3.5,0", "7,20,4.5,0"]
    (tmp_path / "ratings.csv").write_text("\n".join(lines))
    samples, items = read_ratings(tmp_path, 4.0)
    assert (len(samples), items) == (2, 3)
    (sets,) = samples[torch.tensor([1, 0])]
    assert sets.tolist() == [[0, 1, 1], [1, 0, 0]]


def test_rare_words_have_no_number_of_their_own(tmp_path: Path) -> None:
    from fairlead.workloads.data import number_words

    numbers = number_words([["b", "a", "b"], ["c", "a"]], limit=6)
    assert numbers == {"a": 4, "b": 5}


@pytest.mark.parametrize(
    ("name", "file", "content", "sentence"),
    [
        ("resnet18", "data_batch_2", b"no pickle", "expected a Python batch of CIFAR-10: "),
        ("resnet18", "data_batch_2", pickle.dumps({}), "of CIFAR-10, with data and labels"),
        ("resnet18", "data_batch_2", pickle.dumps(Path), "CIFAR-10: it names pathlib"),
        ("lm", "wiki.train.tokens", b"too short", "expected more than 35 words, there are 3"),
        ("lm", "wiki.train.tokens", b"\xff\xfe", "expected text in UTF-8"),
        ("transformer", "train.en", b"one line", "train.en, there are 20 and 1"),
        ("recommendation", "ratings.csv", b"a\n1,x,2", "expected lines of user,item,rating: "),
        ("recommendation", "ratings.csv", b"a\n1,2,1\n", "of 4 or better, there is none"),
        ("cyclegan", "trainB/1.png", b"no image", "1.png: cannot be read as an image"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    name: str, file: str, content: bytes, sentence: str, tmp_path: Path
) -> None:
    import torch

    WRITERS[name](tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError) as refused:
        build(name, tmp_path).samples[torch.arange(3)]
    assert str(tmp_path) in str(refused.value)
    assert sentence in str(refused.value)


def test_generated_data_are_as_many_as_the_papers_and_small_in_memory() -> None:
    from fairlead.model.batch_size_rules import SAMPLES_PER_EPOCH
    from fairlead.workloads.data import generate_images

    assert len(generate_images(100_000, 8, 1_000)) == SAMPLES_PER_EPOCH["ResNet-50"]
    modules = [
        importlib.import_module(f"fairlead.workloads.{one.module}") for one in WORKLOADS.values()
    ]
    named = ("SAMPLES", "USERS", "PHOTOGRAPHS", "ENVIRONMENTS")
    for workload, module in zip(WORKLOADS.values(), modules, strict=True):
        (samples,) = (getattr(module, name) for name in named if hasattr(module, name))
        assert samples == SAMPLES_PER_EPOCH[workload.family]
