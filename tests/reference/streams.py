"""Random numbers that are pure functions of (seed, name, n): Philox 4x32-10 (specification, "Random numbers")."""

import numpy as np

MASK64 = 2**64 - 1


def mix64(x):
    """Returns a well-mixed 64-bit hash of a 64-bit number."""
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def philox(key, low, high):
    """Returns the four words of the blocks with counters (low, high): an array [blocks, 4]."""
    u64 = np.uint64
    word = u64(0xFFFFFFFF)
    low = np.asarray(low, u64)
    high = np.full_like(low, high)
    c0, c1, c2, c3 = low & word, low >> u64(32), high & word, high >> u64(32)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = c0 * u64(0xD2511F53), c2 * u64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> u64(32)) ^ c1 ^ u64(k0), p1 & word, (p0 >> u64(32)) ^ c3 ^ u64(k1), p0 & word
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1)


class Stream:
    """The stream of one purpose. Methods receive the indices, an array or a range starting at 0."""

    def __init__(self, seed, name):
        h = mix64(seed)
        for byte in name.encode():
            h = mix64(h ^ byte)
        self.key = mix64(h ^ len(name.encode()))

    @classmethod
    def with_key(cls, key):
        stream = cls.__new__(cls)
        stream.key = key
        return stream

    def bits32(self, n):
        n = np.asarray(n, np.uint64)
        blocks = philox(self.key, n // np.uint64(4), 0)
        return np.take_along_axis(blocks, (n % np.uint64(4)).astype(int)[..., None], -1)[..., 0]

    def bits64(self, n):
        """Returns number n as a 64-bit integer."""
        block = philox(self.key, np.array([n // 2]), 0)[0]
        return int(block[3 if n % 2 else 1]) << 32 | int(block[2 if n % 2 else 0])

    def uniform(self, n):
        """Returns numbers in [0, 1) with 24 random bits."""
        return (self.bits32(n) >> np.uint64(8)).astype(float) * 2.0**-24

    def symmetric(self, n):
        """Returns numbers in (-1, 1), never exactly 0."""
        return (2.0 * (self.bits32(n) >> np.uint64(8)).astype(float) + 1.0) * 2.0**-24 - 1.0

    def normal(self, n):
        """Returns standard normal numbers, rounded to single precision."""
        n = np.asarray(n, np.uint64)
        blocks = philox(self.key, n // np.uint64(2), 0).astype(float)
        radius = np.sqrt(-2.0 * np.log((blocks[..., 0] + 0.5) * 2.0**-32))
        angle = 2.0 * np.pi * blocks[..., 1] * 2.0**-32
        odd = n % np.uint64(2) == 1
        return (radius * np.where(odd, np.sin(angle), np.cos(angle))).astype(np.float32).astype(float)

    def below(self, n, bound):
        """Returns integers in [0, bound)."""
        block = philox(self.key, np.array([n // 2]), 0)[0]
        return int(block[3 if n % 2 else 1]) * bound >> 32

    def priority(self, positions):
        """Returns the priorities of positions for rebirth (smallest first)."""
        blocks = philox(self.key, positions, 1)
        bits = ((blocks[..., 1] << np.uint64(32)) | blocks[..., 0]) >> np.uint64(1)
        return np.minimum(bits, np.uint64(2**63 - 2))


def random_experts(library_seed, layer, token, experts, k):
    """Returns k distinct experts for a token id with routing = "hash": Floyd's method, then a shuffle."""
    stream = Stream.with_key(mix64(mix64(library_seed ^ 0x726F757465) ^ (layer << 32 | token)))
    drawn = 0
    chosen = []
    for last in range(experts - k, experts):
        pick = stream.below(drawn, last + 1)
        chosen.append(last if pick in chosen else pick)
        drawn += 1
    for i in range(k - 1, 0, -1):
        j = stream.below(drawn, i + 1)
        chosen[i], chosen[j] = chosen[j], chosen[i]
        drawn += 1
    return chosen
