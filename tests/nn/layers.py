"""The exact layers, by name, as functions of numbers and sigma: what every test of this folder runs on."""

from __future__ import annotations

from varopt import nn, terms

OWN = terms.piecewise([-1.0, 0.5], [[1.0], [0.0, 1.0, 0.0, -1.0], [0.0, 2.0]])
ELEMENTWISE = {
    "step": nn.step,
    "sign": nn.sign,
    "zero_one": nn.zero_one,
    "round": nn.round,
    "round_to_grid": lambda x, s: nn.round(x, s, 0.25),
    "clip": lambda x, s: nn.clip(x, -0.5, 1.0, s),
    "relu": nn.relu,
    "hinge": nn.hinge,
    "pinball": lambda x, s: nn.pinball(x, 0.3, s),
    "huber": lambda x, s: nn.expect(terms.huber(0.7), x, s),
    "scad": lambda x, s: nn.expect("scad", x, s),
    "own": lambda x, s: nn.expect(OWN, x, s),
}
ORDERED = {
    "argmax": nn.argmax,
    "top2": lambda x, s: nn.topk(x, 2, s),
    "top4": lambda x, s: nn.topk(x, 4, s),
    "rank": nn.rank,
    "sort": nn.sort,
    "discounted": lambda x, s: nn.average_of_rank(x, [1.0, 0.6, 0.5], s),
}
LAYERS = ELEMENTWISE | ORDERED

# Five numbers for the layers that order them: spread, tied, far apart, close.
ROWS = {
    "spread": [0.3, -1.2, 0.45, 2.0, -0.1],
    "tied": [0.0, 0.0, 0.0, 0.0, 0.0],
    "pairs": [1.0, -1.0, 1.0, -1.0, 1.0],
    "far": [1000.0, -1000.0, 0.0, 500.0, -20.0],
    "close": [1e-9, 0.0, -1e-9, 2e-9, 0.0],
}
