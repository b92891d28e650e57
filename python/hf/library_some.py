"""The random numbers of SoME, bit-identical to the program: frozen expert library and hash routing.

A number is a pure function of (seed, name, n): Philox 4x32-10 with a 64-bit key. Everything here uses only operations that
IEEE 754 rounds exactly, in a fixed order, so that the program (on CPUs and GPUs) and this file generate the same library.
NumPy alone is needed.
"""

import numpy as np

MASK64 = 2**64 - 1
U64 = np.uint64


def mix64(x):
    """Returns a well-mixed 64-bit hash of a 64-bit number (a Python int)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def mix64_array(x):
    """The same for an array of uint64, with wrap-around."""
    x = x + U64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
    return x ^ (x >> U64(31))


def stream_key(seed, name):
    """Returns the key of the stream of one purpose, such as "experts.3.down"."""
    key = mix64(seed & MASK64)
    for byte in name.encode():
        key = mix64(key ^ byte)
    return mix64(key ^ len(name.encode()))


def philox(key, first, count):
    """Returns the four 32-bit words of the blocks first .. first + count - 1: uint64 [count, 4]."""
    word = U64(0xFFFFFFFF)
    counter = np.arange(first, first + count, dtype=U64)
    c0, c1 = counter & word, counter >> U64(32)
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = c0 * U64(0xD2511F53), c2 * U64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> U64(32)) ^ c1 ^ U64(k0), p1 & word, (p0 >> U64(32)) ^ c3 ^ U64(k1), p0 & word
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1)


def bits32(key, first, count):
    """32-bit words of a stream, four per block."""
    block = first // 4
    words = philox(key, block, (first + count + 3) // 4 - block).reshape(-1)
    return words[first - 4 * block:][:count]


def bits64(key, first, count):
    """64-bit words of a stream, two per block."""
    block = first // 2
    words = philox(key, block, (first + count + 1) // 2 - block)
    pairs = np.stack([words[:, 1] << U64(32) | words[:, 0], words[:, 3] << U64(32) | words[:, 2]], axis=-1)
    return pairs.reshape(-1)[first - 2 * block:][:count]


def uniform(key, n):
    """Returns number n of a stream, in [0, 1), with 24 random bits."""
    return float(int(bits32(key, n, 1)[0]) >> 8) * 2.0**-24


def below(key, n, bound):
    """Returns integer number n of a stream, in [0, bound)."""
    return (int(bits64(key, n, 1)[0]) >> 32) * bound >> 32


def symmetric(key, first, count):
    """Returns float32 numbers in (-1, 1), never exactly 0."""
    whole = (bits32(key, first, count) >> U64(8)).astype(np.int64)
    return (2 * whole + 1 - 16777216).astype(np.float32) * np.float32(2.0**-24)


# Computes a fused multiply-add, which NumPy lacks, from error-free sums and products and rounding to odd (Boldo and
# Melquiond, 2008). Numbers of the magnitudes used here never overflow or underflow in between.


def two_sum(a, b):
    """Returns a + b exactly, as rounded value and remainder."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def split(a):
    """Splits a number into two halves of 26 bits, whose products are exact."""
    high = a * 134217729.0  # 2^27 + 1
    high = high - (high - a)
    return high, a - high


def two_product(a, b, a_halves=None, b_halves=None):
    """Returns a * b exactly, as rounded value and remainder. Factors used repeatedly can be passed already split."""
    (ah, al), (bh, bl) = a_halves or split(a), b_halves or split(b)
    p = a * b
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def add_odd(a, b):
    """Returns a + b, rounded to the odd one of its two neighbors if it is not exact."""
    s, rest = two_sum(a, b)
    even = (s.view(np.int64) & 1) == 0
    return np.where((rest != 0) & even, np.nextafter(s, np.copysign(np.inf, rest)), s)


def add_product(product, c):
    """Returns c + product, rounded once; the product is an exact sum of two numbers."""
    high, low = product
    middle, rest = two_sum(c, low)
    first, second = two_sum(high, middle)
    third = rest + second
    # `third` is rounded. Both of its neighbors nearly always lead to the same sum, which is then the correct one.
    result = first + third * (1.0 + 2.0**-52)
    doubtful = result != first + third * (1.0 - 2.0**-52)
    if np.any(doubtful):
        result[doubtful] = first[doubtful] + add_odd(rest[doubtful], second[doubtful])
    return result


def fma(a, b, c):
    """Returns a * b + c in double precision, rounded once."""
    a, b, c = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64), np.asarray(c, np.float64))
    return add_product(two_product(a, b), c)


def exact_log(x):
    m, e = np.frexp(x)  # m in [1/2, 1)
    small = m < 0.70710678118654752440
    m, e = np.where(small, m + m, m), np.where(small, e - 1, e).astype(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = np.full_like(z, 1.0 / 23.0)
    for odd in (21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0):
        p = fma(p, z, 1.0 / odd)
    return fma(e, 0.69314718055994530942, 2.0 * s * p)


def exact_sincos_turn(t):
    """Returns sin and cos of 2 pi t for t in [0, 1)."""
    scaled = t * 4.0
    q = (scaled + 0.5).astype(np.int64)
    r = (scaled - q) * 1.57079632679489661923
    z = r * r
    s = np.full_like(z, -1.0 / 1307674368000.0)
    for over in (6227020800.0, -39916800.0, 362880.0, -5040.0, 120.0, -6.0):
        s = fma(s, z, 1.0 / over)
    s = fma(s * z, r, r)
    c = np.full_like(z, 1.0 / 20922789888000.0)
    for over in (-87178291200.0, 479001600.0, -3628800.0, 40320.0, -720.0, 24.0, -2.0, 1.0):
        c = fma(c, z, 1.0 / over)
    q = q & 3
    sine = np.choose(q, [s, c, -s, -c])
    cosine = np.choose(q, [c, -s, -c, s])
    return sine, cosine


def normal(key, first, count):
    """Returns standard normal numbers, rounded to float32; two per block (Box-Muller)."""
    block = first // 2
    words = philox(key, block, (first + count + 1) // 2 - block)
    u = (words[:, 0].astype(np.float64) + 0.5) * 2.0**-32
    radius = np.sqrt(-2.0 * exact_log(u))
    sine, cosine = exact_sincos_turn(words[:, 1].astype(np.float64) * 2.0**-32)
    pairs = np.stack([radius * cosine, radius * sine], axis=-1).astype(np.float32)
    return pairs.reshape(-1)[first - 2 * block:][:count]


# The library.


# Each function draws the matrices [experts, rows, cols] of some experts, whose streams begin at
# `first`.


def draw_default(key, drop_key, first, rows, cols, experts):
    bound = np.float32(1.0 / np.sqrt(np.float64(cols)))
    return (symmetric(key, first, experts * rows * cols) * bound).reshape(experts, rows, cols)


def draw_sparse(key, drop_key, first, rows, cols, experts):
    count, shape = experts * rows * cols, (experts, rows, cols)
    matrices = (normal(key, first, count) * np.float32(0.01)).reshape(shape)
    dropped = np.argsort(bits64(drop_key, first, count).reshape(shape), axis=1, kind="stable")[:, :(rows + 1) // 2]
    np.put_along_axis(matrices, dropped, np.float32(0), axis=1)
    return matrices


def chain(products, start):
    """Adds the products (each in two parts) to start, one after another along the next axis, rounding each sum once."""
    for product in zip(*products):
        start = add_product(product, start)
    return start


def orthonormal_panel(p):
    """Orthonormalizes the panels p [experts, columns, tall] (Gram-Schmidt), column by column."""
    for j in range(p.shape[1]):
        own = p[:, j]
        square = chain(np.moveaxis(two_product(own, own), 2, 1), np.zeros(len(p)))
        length = np.sqrt(square)
        own = own * np.divide(1.0, length, out=np.zeros_like(length), where=square > 0)[:, None]
        p[:, j] = own
        own, others = own[:, None], p[:, j + 1:]
        products = np.ascontiguousarray(np.moveaxis(two_product(own, others), 3, 1))  # [2, tall, experts, columns]
        r = chain(products, np.zeros(others.shape[:2]))
        p[:, j + 1:] = fma(own, -r[:, :, None], others)


def orthonormal(a):
    """Orthonormalizes the rows of matrices [experts, wide, tall]: block Gram-Schmidt, done twice. Every number is
    one chain of fused multiply-adds, upwards from 0; independent chains are computed at once."""
    experts, wide, tall = a.shape
    rows = np.zeros((3, experts, wide, tall))  # finished rows, and their two halves
    columns = np.zeros((3, experts, tall, wide))  # the same transposed, for contiguous access
    for left in range(0, wide, 16):
        p = a[:, left:left + 16].copy()
        for _ in range(2):
            if left > 0:
                s = np.zeros((experts, p.shape[1], left))
                halves = split(p)
                for i in range(tall):
                    q = columns[:, :, i, None, :left]
                    s = add_product(
                        two_product(q[0], p[:, :, i, None], (q[1], q[2]), [half[:, :, i, None] for half in halves]), s)
                s = -s
                halves = split(s)
                for j in range(left):
                    q = rows[:, :, j, None]
                    p = add_product(
                        two_product(q[0], s[:, :, j, None], (q[1], q[2]), [half[:, :, j, None] for half in halves]), p)
            orthonormal_panel(p)
        rows[:, :, left:left + 16] = [p, *split(p)]
        columns[..., left:left + 16] = rows[:, :, left:left + 16].swapaxes(2, 3)
    return rows[0]


def draw_orthogonal(key, drop_key, first, rows, cols, experts):
    gauss = normal(key, first, experts * rows * cols).reshape(experts, rows, cols)
    a = gauss.transpose(0, 2, 1) if rows >= cols else gauss
    result = orthonormal(a.astype(np.float64)).astype(np.float32) + np.float32(0)
    return result.transpose(0, 2, 1) if rows >= cols else result


def hadamard_signs(seed, layer, name, expert, d, f, transforms):
    """Returns the signs of one matrix of one expert with init = "hadamard": float32 [blocks, transforms, P], P the
    next power of two >= d. Such experts have no stored numbers; modeling_some applies them as transforms."""
    size = 1 << (d - 1).bit_length()
    blocks, words = -(-f // size), -(-size // 64)
    count = blocks * transforms * words
    key = stream_key(seed, f"experts.{layer}.{STREAMS[name]}.signs")
    drawn = bits64(key, expert * count, count)
    bits = drawn[:, None] >> np.arange(64, dtype=U64) & U64(1)
    return 1 - 2 * bits.reshape(blocks, transforms, words * 64)[..., :size].astype(np.float32)


def hadamard_hash(seed, layer, experts, d, f, transforms, has_w2):
    """Returns the hash of a layer of such experts: the hash of their specification."""
    return stream_key(seed, f"hadamard {transforms} layer {layer} experts {experts} d_model {d} d_ffn {f} "
                            f"w2 {1 if has_w2 else 0}")


METHODS = {"default": draw_default, "orthogonal": draw_orthogonal, "sparse": draw_sparse}
STREAMS = {"w1": "down", "w2": "up"}  # the names that the matrices had first


def draw_matrices(seed, init, layer, name, experts, rows, cols):
    """Returns matrix `name` ("w1" or "w2") of all experts of a layer: float32 [experts, rows, cols]."""
    if init not in METHODS:
        raise ValueError(f'some.init = "{init}" cannot be generated from a seed; must be one of {", ".join(METHODS)}')
    stream = f"experts.{layer}.{STREAMS[name]}"
    key, drop_key = stream_key(seed, stream), stream_key(seed, stream + ".drop")
    out = np.empty((experts, rows, cols), np.float32)
    # Many experts at once take hardly longer than one; the number is limited by memory (a few hundred
    # megabytes).
    together = max(1, min(experts, (1 << 22) // (rows * cols)))
    for e in range(0, experts, together):
        count = min(together, experts - e)
        out[e:e + count] = METHODS[init](key, drop_key, e * rows * cols, rows, cols, count)
    return out


def hash_matrices(name, matrices):
    """Returns a layer's hash: the sum (modulo 2^64) over its matrices."""
    total = 0
    which = U64(0 if name == "w1" else 1)
    size = matrices[0].size
    for e, matrix in enumerate(matrices):
        index = np.arange(e * size, (e + 1) * size, dtype=U64)
        bits = np.ascontiguousarray(matrix, np.float32).view(np.uint32).reshape(-1).astype(U64)
        total += int(mix64_array(bits ^ mix64_array(U64(2) * index + which)).sum(dtype=U64))
    return total & MASK64


def random_experts(seed, layer, token, experts, k):
    """Returns k distinct experts for a token id with routing = "hash": Floyd's method, then a shuffle."""
    key = mix64(mix64(seed ^ 0x726F757465) ^ (layer << 32 | token))
    drawn = 0
    chosen = []
    for last in range(experts - k, experts):
        pick = below(key, drawn, last + 1)
        chosen.append(last if pick in chosen else pick)
        drawn += 1
    for i in range(k - 1, 0, -1):
        j = below(key, drawn, i + 1)
        chosen[i], chosen[j] = chosen[j], chosen[i]
        drawn += 1
    return chosen
