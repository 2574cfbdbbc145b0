"""Hugging Face's Trainer under the callback: interrupted anywhere it ends with the same weights."""

import importlib
import importlib.util
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")),
        reason="transformers or accelerate is not installed",
    ),
    pytest.mark.filterwarnings("ignore"),  # its advice
]


def noisy(samples: list[Any]) -> dict[str, Any]:
    """A data collator that draws random numbers."""
    import torch

    x = torch.stack(samples)
    return {"x": x + torch.rand_like(x) + random.random()}


class Job:
    """Each start is a new Trainer."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.options = options
        self.seen: list[str] = []
        self.stop_at = -1
        self.handler = signal.getsignal(signal.SIGTERM)

    def run(self, *stops: int) -> tuple[list[str], str]:
        from tests.client.torch_jobs import digest, seed

        for start, stop in enumerate([*stops, -1]):
            seed(17 * start + 1 if start else 0)
            self.stop_at = stop
            model = self.model()
            try:
                done = self.start(model)
            except SystemExit as left:
                assert left.code == 0  # noqa: PT017
                signal.signal(signal.SIGTERM, self.handler)
                continue
            assert done
            return self.seen, digest(*model.parameters())
        raise AssertionError("it did not come to its end")

    def model(self) -> Any:
        import torch
        from torch import nn

        from tests.client.torch_jobs import digest

        torch.manual_seed(0)
        job = self

        class Model(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))

            def forward(self, x: Any) -> dict[str, Any]:
                if self.training:
                    job.seen.append(digest(x))
                    if len(job.seen) - 1 == job.stop_at:
                        os.kill(os.getpid(), signal.SIGTERM)
                return {"loss": self.layers(x).square().mean()}

        return Model()

    def start(self, model: Any) -> bool:
        import transformers

        from tests.client.torch_jobs import Points

        module = importlib.import_module("fairlead.client.transformers")
        arguments = transformers.TrainingArguments(
            output_dir=str(self.folder / "out"),
            num_train_epochs=3,
            per_device_train_batch_size=4,
            learning_rate=1e-4,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
            logging_strategy="no",
            **self.options,
        )
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=Points("torch"), data_collator=noisy
        )
        fairlead = module.FairleadCallback(trainer, checkpoint_dir=self.folder / "checkpoints")
        trainer.train(resume_from_checkpoint=fairlead.checkpoint)
        return bool(fairlead.lease.completed)


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        ({}, (0, 3, 4)),
        ({}, (5, 9, 13)),
        ({"gradient_accumulation_steps": 2}, (1, 4, 8)),
        ({"dataloader_num_workers": 2}, (2, 7)),
    ],
)
def test_moved_it_is_exact(options: dict[str, Any], stops: tuple[int, ...], tmp_path: Path) -> None:
    whole = Job(tmp_path / "whole", **options).run()
    assert len(whole[0]) == 15
    assert Job(tmp_path / "parts", **options).run(*stops) == whole


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}])
def test_exact_at_every_batch(options: dict[str, Any], tmp_path: Path) -> None:
    whole = Job(tmp_path / "whole", **options).run()
    for stop in range(14):
        assert Job(tmp_path / str(stop), **options).run(stop) == whole, f"stopped at {stop}"


def test_a_job_that_is_done_is_not_trained_again(tmp_path: Path) -> None:
    job = Job(tmp_path)
    first = job.run()
    again = job.run()
    assert again == first


def test_that_the_trainer_has_other_steps_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.client.lease import Lease

    told: list[int | None] = []
    monkeypatch.setattr(Lease, "warn_of_total", lambda _, own_total: told.append(own_total))
    Job(tmp_path).run()
    assert told == [None, 15]


def test_what_cannot_be_put_back_is_refused(tmp_path: Path) -> None:
    from fairlead.errors import ConfigError

    with pytest.raises(ConfigError, match="dataloader_persistent_workers"):
        Job(tmp_path, dataloader_persistent_workers=True, dataloader_num_workers=1).run()
    with pytest.raises(ConfigError, match="use_seedable_sampler"):
        Job(tmp_path, accelerator_config={"use_seedable_sampler": False}).run()


def test_a_checkpoint_that_is_not_given_to_the_trainer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    from fairlead.errors import ConfigError

    job, train = Job(tmp_path), transformers.Trainer.train
    monkeypatch.setattr(
        transformers.Trainer, "train", lambda self, resume_from_checkpoint: train(self)
    )
    with pytest.raises(ConfigError, match="needs resume_from_checkpoint"):
        job.run(3)
