"""A transformer that translates German into English, on Multi30k: 10,000 pairs of sentences per pass.

The base model of Vaswani et al. (Attention Is All You Need, 2017): six layers each way, 512 wide, 8 heads,
Adam with a warm-up of 4,000 steps; sentences of 50 words at most. A folder of data has a sentence per line in
``train.de`` and ``train.en``; a pass is over all of them.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import torch
from torch import nn

from fairlead.errors import InputError
from fairlead.workloads.data import (
    BEGIN,
    END,
    MARKS,
    PADDING,
    UNKNOWN,
    TensorDataset,
    generate_words,
    number_words,
    read_lines,
)
from fairlead.workloads.parts import BuildOptions, WorkloadParts

SAMPLES, MAX_WORDS, GENERATED_WORDS, VOCABULARY = 10_000, 50, 15, 10_000
WIDTH, LAYERS, HEADS, WARMUP_STEPS, DROPOUT = 512, 6, 8, 4_000, 0.1


class Translator(nn.Module):
    """Guesses each word of a translation from those before it and from the original."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.places = nn.Embedding(MAX_WORDS + 2, width)
        self.transformer = nn.Transformer(
            d_model=width,
            nhead=HEADS,
            num_encoder_layers=layers,
            num_decoder_layers=layers,
            dim_feedforward=4 * width,
            dropout=DROPOUT,
            batch_first=True,
        )
        self.scores = nn.Linear(width, vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """(n, words) numbers each, padded -> the mean cross entropy of the words of the target."""
        known, following = target[:, :-1], target[:, 1:]
        length = known.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=known.device).triu(1)
        decoded = self.transformer(
            self._embed(source),
            self._embed(known),
            tgt_mask=later,
            src_key_padding_mask=source == PADDING,
            tgt_key_padding_mask=known == PADDING,
            memory_key_padding_mask=source == PADDING,
        )
        scores = self.scores(decoded).flatten(0, 1)
        return nn.functional.cross_entropy(
            scores, following.flatten(), ignore_index=PADDING, label_smoothing=0.1
        )

    def _embed(self, words: torch.Tensor) -> torch.Tensor:
        return self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))


def warmup(step: int) -> float:
    """The learning rate of a step, relative to its peak: it rises linearly, then falls with the root."""
    return min((step + 1) / WARMUP_STEPS, math.sqrt(WARMUP_STEPS / (step + 1)))


def build(options: BuildOptions) -> WorkloadParts:
    """Return the parts of the workload. small: one layer each way, 32 wide, 160 pairs of 15 words."""
    width, layers, vocabulary = (32, 1, 100) if options.small else (WIDTH, LAYERS, VOCABULARY)
    if options.data is None:
        length = 160 if options.small else SAMPLES
        samples = _generate(length, vocabulary)
    else:
        samples = _read(options.data, vocabulary)
    peak = (width * WARMUP_STEPS) ** -0.5
    return WorkloadParts(
        model=Translator(vocabulary, width, layers),
        samples=samples,
        make_optimizer=partial(torch.optim.Adam, lr=peak, betas=(0.9, 0.98), eps=1e-9),
        learning_rate=peak,
        warmup=warmup,
        growth_power=0.5,
    )


def _generate(length: int, vocabulary: int) -> TensorDataset:
    """Sentences, and as their translations the same words by another vocabulary, in reverse order."""
    source = generate_words(length, GENERATED_WORDS, vocabulary)
    dictionary = torch.cat([torch.arange(MARKS), MARKS + torch.randperm(vocabulary - MARKS)])
    target = nn.functional.pad(dictionary[source.flip(1)], (1, 0), value=BEGIN)
    return TensorDataset(source, nn.functional.pad(target, (0, 1), value=END), length=length)


def _read(folder: Path, vocabulary: int) -> TensorDataset:
    languages = [read_lines(folder, name) for name in ("train.de", "train.en")]
    if len(languages[0]) != len(languages[1]) or not languages[0]:
        counts = " and ".join(str(len(lines)) for lines in languages)
        raise InputError(
            f"{folder}: expected as many lines in train.de as in train.en, there are {counts}"
        )
    return TensorDataset(*(_number(lines, vocabulary) for lines in languages))


def _number(lines: list[list[str]], vocabulary: int) -> torch.Tensor:
    """(sentences, words) numbers, with a mark at the beginning and the end, padded."""
    numbers = number_words(lines, vocabulary)
    sentences = [
        [BEGIN, *(numbers.get(word, UNKNOWN) for word in line[:MAX_WORDS]), END] for line in lines
    ]
    longest = max(map(len, sentences))
    return torch.tensor([one + [PADDING] * (longest - len(one)) for one in sentences])
