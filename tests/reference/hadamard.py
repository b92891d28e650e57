"""Hadamard experts with random signs as explicit matrices (specification, section 3, "Hadamard experts")."""

import numpy as np

import streams


def hadamard(size):
    """Returns Sylvester's matrix, normalized: H[i, j] = (-1)^popcount(i AND j) / sqrt(size)."""
    h = np.ones((1, 1))
    while len(h) < size:
        h = np.block([[h, h], [h, -h]])
    return h / np.sqrt(size)


def stacked_blocks(config, stream, expert):
    """Returns the blocks of an expert on top of each other, cut to [f, d]; without the factor of row lengths."""
    d, f, transforms = config["d_model"], config["d_ffn"], config.get("hadamard_transforms", 1)
    size = 1 << (d - 1).bit_length()
    count, words = -(-f // size), -(-size // 64)
    h = hadamard(size)
    blocks = []
    for b in range(count):
        block = np.eye(size)
        for m in range(transforms):
            first = ((expert * count + b) * transforms + m) * words
            bits = np.array([int(stream.bits64(first + j // 64)) >> (j % 64) & 1 for j in range(size)])
            block = h @ (np.where(bits == 1, -1.0, 1.0)[:, None] * block)
        blocks.append(block)
    return np.concatenate(blocks)[:f, :d]


def matrices(config, layer):
    """Returns experts.w1 [E, f, d] and experts.w2 [E, d, f] of a layer."""
    d, f, seed = config["d_model"], config["d_ffn"], config.get("library_seed", 0)
    size = 1 << (d - 1).bit_length()
    of = lambda name: np.stack([stacked_blocks(config, streams.Stream(seed, f"experts.{layer}.{name}.signs"), e)
                                for e in range(config["experts"])])
    return {"experts.w1": np.sqrt(size / (3.0 * d)) * of("down"),
            "experts.w2": np.sqrt(size / (3.0 * f)) * of("up").transpose(0, 2, 1)}
