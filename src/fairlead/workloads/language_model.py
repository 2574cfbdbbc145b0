"""An LSTM language model on Wikitext-2: sequences of 35 words, 59,675 of them per pass.

Two layers of 650 units with dropout, whose embedding and output share their weights (Zaremba et al.,
Recurrent Neural Network Regularization, 2014; the medium model). Each sequence begins with a state of zeros,
so sequences may come in any order.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

from fairlead.errors import InputError
from fairlead.workloads.data import (
    UNKNOWN,
    TensorDataset,
    generate_words,
    number_words,
    read_lines,
)
from fairlead.workloads.parts import BuildOptions, WorkloadParts

SAMPLES, WORDS, VOCABULARY = 59_675, 35, 33_278
WIDTH, LAYERS, DROPOUT, LEARNING_RATE, MAX_NORM = 650, 2, 0.5, 1.0, 0.25


class LanguageModel(nn.Module):
    """Guesses each word from those before it."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.lstm = nn.LSTM(width, width, LAYERS, dropout=DROPOUT, batch_first=True)
        self.dropout = nn.Dropout(DROPOUT)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(n, words + 1) numbers -> the mean cross entropy of all words but the first."""
        known, following = words[:, :-1], words[:, 1:]
        hidden, _ = self.lstm(self.dropout(self.embedding(known)))
        scores = nn.functional.linear(self.dropout(hidden), self.embedding.weight, self.bias)
        return nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())


def build(options: BuildOptions) -> WorkloadParts:
    """Return the parts of the workload. small: 32 units, 200 sequences of 100 different words."""
    vocabulary, width = (100, 32) if options.small else (VOCABULARY, WIDTH)
    if options.data is None:
        length = 200 if options.small else SAMPLES
        words = generate_words(length, WORDS + 1, vocabulary)
    else:
        words, length = _read(options.data, vocabulary), None
    return WorkloadParts(
        model=LanguageModel(vocabulary, width),
        samples=TensorDataset(words, length=length),
        make_optimizer=partial(torch.optim.SGD, lr=LEARNING_RATE),
        learning_rate=LEARNING_RATE,
        growth_power=0.5,
        max_norm=MAX_NORM,
    )


def _read(folder: Path, vocabulary: int) -> torch.Tensor:
    """(samples, words + 1) numbers: the text of wiki.train.tokens in pieces that share one word each."""
    lines = [[*line, "<eos>"] for line in read_lines(folder, "wiki.train.tokens")]
    numbers = number_words(lines, vocabulary)
    text = torch.tensor([numbers.get(word, UNKNOWN) for line in lines for word in line])
    if len(text) <= WORDS:
        raise InputError(
            f"{folder / 'wiki.train.tokens'}: expected more than {WORDS} words, there are {len(text)}"
        )
    return text.unfold(0, WORDS + 1, WORDS)
