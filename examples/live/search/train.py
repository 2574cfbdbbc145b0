"""A small network that learns to tell two spirals apart; its parameters are those of a trial.

By hand, `python train.py` trains with the defaults. Needs NumPy.
"""

import numpy as np

import fairlead

p = fairlead.parameters(lr=0.1, width=32, momentum=0.9, activation="tanh")
rng = np.random.default_rng(0)


def spirals(points):
    angle = np.sqrt(rng.random(points)) * 2 * np.pi
    label = rng.integers(0, 2, points)
    arm = np.stack([np.cos(angle + np.pi * label), np.sin(angle + np.pi * label)], 1)
    return angle[:, None] * arm / 3 + rng.normal(0, 0.05, (points, 2)), label


def forward(x, weights):
    w1, b1, w2, b2 = weights
    inner = x @ w1 + b1
    hidden = np.tanh(inner) if p["activation"] == "tanh" else np.maximum(inner, 0)
    return hidden, 1 / (1 + np.exp(-np.clip(hidden @ w2 + b2, -30, 30)))


(x, y), (test_x, test_y) = spirals(1_000), spirals(1_000)
weights = [
    rng.normal(0, 1, (2, p["width"])), np.zeros(p["width"]),
    rng.normal(0, 1 / p["width"] ** 0.5, p["width"]), np.zeros(1),
]  # fmt: skip
speed = [np.zeros_like(w) for w in weights]

for epoch in range(1, 82):
    for start in range(0, len(x), 50):
        batch, wanted = x[start : start + 50], y[start : start + 50]
        hidden, guess = forward(batch, weights)
        error = (guess - wanted) / len(batch)
        inner = error[:, None] * weights[2]
        inner *= 1 - hidden**2 if p["activation"] == "tanh" else hidden > 0
        slopes = [batch.T @ inner, inner.sum(0), hidden.T @ error, error.sum(keepdims=True)]
        for w, v, slope in zip(weights, speed, slopes):
            v *= p["momentum"]
            v -= p["lr"] * slope
            w += v
    accuracy = np.mean((forward(test_x, weights)[1] > 0.5) == test_y)
    fairlead.report(step=epoch, accuracy=accuracy)
