"""The transformer (specification, section 2) on padded rows: tokens [B, S] in, logits [B, S, V] out."""

import numpy as np

import layer
import tape


def layer_norm(p, name, x):
    d = x.shape[-1]
    centred = x - x.sum(axis=-1, keepdims=True) / d
    variance = (centred * centred).sum(axis=-1, keepdims=True) / d
    return centred / tape.power(variance + 1e-5, 0.5) * p[name + ".weight"] + p[name + ".bias"]


def angles(length, size):
    """Returns p * 10000^(-2i/size) for positions p and pairs i: [length, size/2]."""
    return np.arange(length)[:, None] * 10000.0**(-2.0 * np.arange(size // 2) / size)


def position_code(length, d):
    code = np.zeros((length, d))
    code[:, 0::2] = np.sin(angles(length, d))
    code[:, 1::2] = np.cos(angles(length, d))
    return code


def rotate(x):
    """Applies rotary positions to x [B, H, S, size]: rotates each pair (2i, 2i+1) by its angle."""
    length, size = x.shape[-2:]
    sine, cosine = (np.repeat(g(angles(length, size)), 2, axis=1) for g in (np.sin, np.cos))
    # (a, b) -> (-b, a) for each pair, as a matrix: turned = x @ quarter
    quarter = np.zeros((size, size))
    for i in range(0, size, 2):
        quarter[i + 1, i], quarter[i, i + 1] = -1.0, 1.0
    return x * cosine + (x @ quarter) * sine


def attention(config, p, name, x):
    batch, length, d = x.shape
    heads = config["heads"]
    size = d // heads
    qkv = tape.linear(x, p[name + ".qkv.weight"], p[name + ".qkv.bias"])
    q, k, v = (qkv[:, :, i * d:(i + 1) * d].reshape(batch, length, heads, size).transpose(0, 2, 1, 3) for i in range(3))
    if config.get("position", "sinusoidal") == "rope":
        q, k = rotate(q), rotate(k)
    scores = (q @ k.transpose(0, 1, 3, 2)) / np.sqrt(size)
    if config.get("causal", True):
        scores = scores + np.where(np.tril(np.ones((length, length))) > 0, 0.0, -np.inf)
    mixed = (tape.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, d)
    return tape.linear(mixed, p[name + ".out.weight"], p[name + ".out.bias"])


def dense(p, name, x):
    hidden = tape.gelu(tape.linear(x, p[name + ".0.weight"], p[name + ".0.bias"]))
    return tape.linear(hidden, p[name + ".1.weight"], p[name + ".1.bias"])


def forward(config, p, stores, tokens, drop=lambda place, x: x, **routing):
    """Returns logits and the layers' results. p: parameters and experts by their checkpoint names; stores: one
    KeyStore per layer.

    drop(place, x): dropout of x [B, S, d], in training. routing: top_k, temperature and taking_part of layer.forward."""
    batch, length = tokens.shape
    d = config["d_model"]
    h = p["embed.weight"][tokens] * np.sqrt(d)
    if config.get("position", "sinusoidal") == "sinusoidal":
        h = h + position_code(length, d)
    h = drop(0, h)
    results = []

    def feed_forward(i, x):
        if config["ffn"] == "dense":
            rows = x.reshape(batch * length, d)
            taps = {"conv.weight": p.get(f"layers.{i}.conv.weight")}
            return dense(p, f"layers.{i}.ffn", layer.conv(config, taps, rows, length)).reshape(batch, length, d)
        own = {name[len(f"layers.{i}."):]: value for name, value in p.items() if name.startswith(f"layers.{i}.")}
        below = results[-1].query if results else None
        results.append(layer.forward(config, own, stores[i].routing_keys(), x.reshape(batch * length, d), below=below,
                                     tokens=tokens.ravel(), layer=i, bias=stores[i].bias,
                                     length=length, **routing))
        return results[-1].y.reshape(batch, length, d)

    for i in range(config["layers"]):
        name = f"layers.{i}"
        attended = lambda x: drop(1 + 2 * i, attention(config, p, name + ".attn", x))
        fed = lambda x: drop(2 + 2 * i, feed_forward(i, x))
        if config["norm"] == "post":
            h = layer_norm(p, name + ".norm1", h + attended(h))
            h = layer_norm(p, name + ".norm2", h + fed(h) if config["ffn"] != "none" else h)
        else:
            h = h + attended(layer_norm(p, name + ".norm1", h))
            if config["ffn"] != "none":
                h = h + fed(layer_norm(p, name + ".norm2", h))
    if config["norm"] == "pre":
        h = layer_norm(p, "final_norm", h)
    return tape.linear(h, p["head.weight"], p["head.bias"]), results
