"""Lightning's Trainer under the callback: interrupted anywhere it ends with the same weights."""

import importlib
import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ["lightning.pytorch", "pytorch_lightning"]
INSTALLED = [name for name in PACKAGES if importlib.util.find_spec(name.partition(".")[0])]
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not INSTALLED, reason="Lightning is not installed"),
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice
]


class Run:
    """A job of Lightning's Trainer; each start is a new Trainer."""

    def __init__(self, name: str, folder: Path, **options: Any) -> None:
        import torch
        from torch import nn

        from tests.client.torch_jobs import digest

        self.pl = pl = importlib.import_module(name)
        self.folder = folder
        self.seen: list[str] = []
        self.ends: list[str] = []
        self.options = options
        self.handler = signal.getsignal(signal.SIGTERM)
        job = self

        class Model(pl.LightningModule):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                job.seen.append(digest(batch))
                if len(job.seen) - 1 == job.stop_at:
                    os.kill(os.getpid(), signal.SIGTERM)
                return self.layers(batch).square().mean()

            def validation_step(self, batch: Any, batch_idx: int) -> None:
                job.ends.append(f"validated {self.current_epoch}/{batch_idx}")

            def on_train_epoch_end(self) -> None:
                job.ends.append(f"epoch {self.current_epoch}")

            def configure_optimizers(self) -> Any:
                optimizer = torch.optim.SGD(self.parameters(), lr=1e-4, momentum=0.9)
                return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

        self.model = Model

    def run(self, make: Any, *stops: int) -> tuple[list[str], list[str], str]:
        from tests.client.torch_jobs import digest, seed

        for start, stop in enumerate([*stops, -1]):
            seed(17 * start + 1 if start else 0)
            self.stop_at = stop
            model = self.model()
            if self.start(model, make()):
                return self.seen, self.ends, digest(*model.parameters())
        raise AssertionError("it did not come to its end")

    def start(self, model: Any, loader: Any) -> bool:
        from tests.client.torch_jobs import Points
        from tests.client.torch_jobs import loader as plain

        module = importlib.import_module("fairlead.client.lightning")
        fairlead = module.FairleadCallback(checkpoint_dir=self.folder)
        trainer = self.pl.Trainer(
            max_epochs=3,
            callbacks=[fairlead],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            **self.options,
        )
        try:
            trainer.fit(model, loader, plain(Points("none")), ckpt_path=fairlead.ckpt_path)
        except SystemExit:
            signal.signal(signal.SIGTERM, self.handler)  # the process would be over
            return False
        assert signal.getsignal(signal.SIGTERM) == self.handler
        assert fairlead.lease.completed
        return True


@pytest.mark.parametrize(
    ("kind", "options", "stops"),
    [
        ("shuffled", {}, (0, 3, 4)),
        ("shuffled", {}, (5, 13)),
        ("shuffled", {"accumulate_grad_batches": 2}, (1, 4, 9)),
        ("python noise", {"val_check_interval": 2}, (1, 6)),
        ("stream", {}, (2, 4, 8)),
    ],
)
def test_moved_it_is_exact(
    kind: str, options: dict[str, Any], stops: tuple[int, ...], tmp_path: Path
) -> None:
    from tests.client.torch_jobs import LOADERS

    make = LOADERS[kind]
    options = {"num_sanity_val_steps": 0, **options}
    whole = Run(INSTALLED[0], tmp_path / "whole", **options).run(make)
    assert len(whole[0]) == 15
    ran = Run(INSTALLED[0], tmp_path / "parts", **options).run(make, *stops)
    assert ran == whole


def test_that_the_trainer_has_other_steps_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.client.lease import Lease
    from tests.client.torch_jobs import LOADERS

    told: list[int | None] = []
    monkeypatch.setattr(Lease, "warn_of_total", lambda _, own_total: told.append(own_total))
    Run(INSTALLED[0], tmp_path, num_sanity_val_steps=0).run(LOADERS["shuffled"])
    assert told == [None, 15]


@pytest.mark.long
@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2}])
def test_exact_at_every_batch(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    from tests.client.torch_jobs import LOADERS

    make = LOADERS["shuffled"]
    whole = Run(name, tmp_path / "whole", **options).run(make)
    for stop in range(14):
        ran = Run(name, tmp_path / str(stop), **options).run(make, stop)
        assert ran == whole, f"stopped at {stop}"


def test_a_checkpoint_that_is_not_given_to_the_trainer_is_an_error(tmp_path: Path) -> None:
    from fairlead.errors import ConfigError
    from tests.client.torch_jobs import LOADERS

    class Forgetful(Run):
        def start(self, model: Any, loader: Any) -> bool:
            fit = self.pl.Trainer.fit
            self.pl.Trainer.fit = lambda trainer, *given, ckpt_path: fit(trainer, *given)
            try:
                return super().start(model, loader)
            finally:
                self.pl.Trainer.fit = fit

    with pytest.raises(ConfigError, match=r"needs ckpt_path=callback\.ckpt_path"):
        Forgetful(INSTALLED[0], tmp_path, num_sanity_val_steps=0).run(LOADERS["shuffled"], 3)


def test_two_loaders_are_refused(tmp_path: Path) -> None:
    from fairlead.errors import ConfigError
    from tests.client.torch_jobs import loader

    with pytest.raises(ConfigError, match="2 loaders"):
        Run(INSTALLED[0], tmp_path, num_sanity_val_steps=0).run(lambda: [loader(), loader()])
