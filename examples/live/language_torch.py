"""A language model in PyTorch: a small transformer on generated text, on one rank or several (DDP).

fairlead submit --steps 500 -- python examples/live/language_torch.py
python examples/live/language_torch.py --steps 100 --checkpoint-dir /tmp/words   (without a scheduler)
"""

import argparse

import torch
from torch import nn
from torch_parts import State, device, fingerprint, join_ranks, leave_ranks, share

import fairlead

WORDS, WIDTH, LENGTH = 40, 32, 16  # vocabulary, width of the model, words of a sentence


def main() -> None:
    """Train; whatever the interruptions, the weights at the end are the same."""
    options = parse()
    rank, ground_truth = join_ranks()
    torch.manual_seed(options.seed)
    sentences = text(options.sentences)
    model = Language(options.dropout).to(device(), options.dtype)
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.lr)
    state = State(model, optimiser, ground_truth)

    def epoch_of(epoch: int, batch_size: int) -> list[torch.Tensor]:
        order = torch.randperm(len(sentences), generator=torch.Generator().manual_seed(epoch))
        return list(order.split(batch_size))

    batches = fairlead.Iterator(
        epoch_of,
        load=state.load,
        save=state.save,
        total_steps=options.steps,
        batch_size=options.batch,
        checkpoint_dir=options.checkpoint_dir,
    )
    for rows in batches:
        # What is drawn in a step (dropout) depends on the step alone, so no generator has to be saved.
        torch.manual_seed(options.seed + 1_000_003 * batches.step + rank)
        words = sentences[share(rows, rank, ground_truth)].to(device())
        guess = state.model(words[:, :-1])
        loss = nn.functional.cross_entropy(guess.flatten(0, 1), words[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if rank == 0 and (batches.step + 1) % options.log_every == 0:
            print(f"step {batches.step + 1} loss {loss:.4f}", flush=True)
    if rank == 0:
        print(f"done: {batches.step} steps, weights {fingerprint(model)}", flush=True)
    leave_ranks()


class Language(nn.Module):
    """One layer of a causal transformer."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH)
        self.place = nn.Embedding(LENGTH, WIDTH)
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=2 * WIDTH, dropout=dropout, batch_first=True
        )
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(sentences, words) -> scores of the next word (sentences, words, WORDS)."""
        length = words.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=words.device).triu(1)
        x = self.word(words) + self.place(torch.arange(length, device=words.device))
        return self.out(self.layer(x, src_mask=later))


def text(count: int) -> torch.Tensor:
    """(count, LENGTH) words; each one follows from the one before it, with some slips."""
    follows = torch.randperm(WORDS)
    words = torch.randint(WORDS, (count, LENGTH))
    slips = torch.rand(count, LENGTH) < 0.1
    for i in range(1, LENGTH):
        words[:, i] = torch.where(slips[:, i], words[:, i], follows[words[:, i - 1]])
    return words


def parse() -> argparse.Namespace:
    """The command line."""
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = about.add_argument
    add("--steps", type=int, default=500)
    add("--sentences", type=int, default=512, help="in the generated text")
    add("--batch", type=int, default=32, help="sentences per step, all ranks together")
    add("--dropout", type=float, default=0.1)
    add("--lr", type=float, default=0.003)
    add("--dtype", type=lambda name: getattr(torch, name), default=torch.float32)
    add("--seed", type=int, default=0)
    add("--log-every", type=int, default=50, help="steps between two lines of output")
    add("--checkpoint-dir", help="where to save, unless the scheduler says")
    return about.parse_args()


if __name__ == "__main__":
    main()
