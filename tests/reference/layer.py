"""The SoME layer (specification, section 3). A "config" is a dictionary with the names of a recipe's keys."""

import numpy as np

import hadamard
import streams
import tape


def normalize(v):
    """Returns v / max(|v|, 1e-12) along the last axis; a norm that was raised counts as a constant."""
    return v / tape.power(tape.at_least((v * v).sum(axis=-1, keepdims=True), 1e-24), 0.5)


def queries(config, p, x, below):
    """Computes the query (3.1 and 3.2). p: the layer's parameters by name; below: the queries of the layer below,
    or None."""
    raw = tape.linear(x, p["router.0.weight"], p["router.0.bias"])
    if config["router"] == "mlp":
        raw = tape.linear(tape.gelu(raw), p["router.1.weight"], p["router.1.bias"])
    q = normalize(raw)
    if config.get("ground", 0.0) > 0 and below is not None:
        q = normalize(q + below * config["ground"])
    return q


def choose(scores, k):
    """Selects the k highest scores (3.3), best first; ties go to the lower expert (the sort keeps their order)."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :k]


def margin(scores, k):
    """Returns the smallest difference between two scores that decides a selection or its order, which rounding must
    not reach."""
    best = -np.sort(-scores, axis=-1)[:, :k + 1]
    return float((best[:, :-1] - best[:, 1:]).min()) if best.shape[1] > 1 else float("inf")


def expert_matrix(p, name):
    """Returns the matrices [E, out, in] of all experts: frozen (a constant), with LoRA, or trained (a variable)."""
    w = tape.variable(p["experts." + name])
    if "experts." + name + ".lora_a" in p:
        w = w + p["experts." + name + ".lora_b"] @ p["experts." + name + ".lora_a"]
    return w


def before(x, j, length):
    """Returns the states j tokens earlier, in sequences of `length` rows; 0 if there are none."""
    rows = np.arange(x.shape[0])
    there = rows % length >= j
    return x[np.where(there, rows - j, 0)] * there[:, None].astype(float)


def conv(config, p, x, length):
    """Returns the input of a block with causal convolution (section 2)."""
    looked = x
    for j in range(1, config.get("conv", 0) + 1):
        looked = looked + before(x, j, length) * p["conv.weight"][j - 1]
    return looked


def modulated(config, p, x, seen, out, length):
    """Computes the trained hidden layer, modulated by the experts (3.9)."""
    tokens, k = out.indices.shape
    said = 1.0
    if config.get("use_library", True):
        states = seen.reshape(tokens, 1, -1, 1)
        token_shift = config.get("token_shift", 0)
        if token_shift > 0:
            back = 1 + out.indices % token_shift
            states = tape.variable(0.0)
            for j in range(1, token_shift + 1):
                hears = (back == j)[:, :, None, None].astype(float)
                states = states + before(x, j, length).reshape(tokens, 1, -1, 1) * hears
        said = (expert_matrix(p, "w1")[out.indices] @ states).reshape(tokens, k, -1)
    v = (p["gains"][out.indices] * said * out.gates.reshape(tokens, k, 1)).sum(axis=1)
    v = v * config.get("modulation_scale", 2.0)
    z = tape.linear(conv(config, p, x, length), p["hidden.weight"], p["hidden.bias"])
    h = tape.gelu(z + v) if config.get("modulation", "multiplicative") == "additive" else tape.gelu(z) * (v + 1.0)
    return tape.linear(h, p["output_proj.weight"])


def partitions(config, queries, keys, bias, ranks):
    """3.3: the ranks with minus infinity for experts outside the partitions that each query searches, and the margin of
    the choice of partitions."""
    count, probe = config.get("key_partitions", 0), config.get("key_probe", 8)
    if count <= 1 or probe >= count:
        return ranks, float("inf")
    bounds = [p * len(keys) // count for p in range(count + 1)]
    parts = list(zip(bounds[:-1], bounds[1:]))
    means = np.stack([keys[a:b].mean(axis=0) for a, b in parts])
    favours = np.stack([np.broadcast_to(bias, len(keys))[a:b].mean() for a, b in parts])
    scores = queries @ means.T + favours
    out = np.full_like(ranks, -np.inf)
    for row, searched in enumerate(choose(scores, probe)):
        for p in searched:
            out[row, slice(*parts[p])] = ranks[row, slice(*parts[p])]
    return out, margin(scores, probe)


class Result:
    """Results of a layer: query, indices, margin, gates, output y, and the routing losses (auxiliary)."""


def forward(config, p, keys, x, top_k=None, temperature=None, below=None, tokens=None, layer=0, taking_part=None,
            bias=0.0, length=None):
    """Computes one layer for the states x [T, d]. keys: [E, c], used for routing; tokens: ids, for hash routing
    only; bias: [E], added to the scores for selection only; length: rows per sequence (None: one sequence). top_k
    and temperature replace those of the configuration; taking_part [T]: positions that the routing losses include
    (None: all)."""
    if config.get("init") == "hadamard" and config.get("training", "frozen") != "full":
        p = {**hadamard.matrices(config, layer), **p}
    out = Result()
    top_k = top_k or config["top_k"]
    out.query = queries(config, p, x, below)
    scores = out.query @ keys.T
    if config.get("routing", "keys") == "hash":
        chosen = {t: streams.random_experts(config.get("library_seed", 0), layer, int(t), len(keys), top_k)
                  for t in set(tokens)}
        out.indices, out.margin = np.array([chosen[t] for t in tokens]), float("inf")
    else:
        ranks, clear = partitions(config, out.query.value, keys, bias, scores.value + bias)
        out.indices = choose(ranks, top_k)
        out.margin = min(clear, margin(np.maximum(ranks, -1e3), top_k))

    # Gates of the chosen experts (spec 3.4).
    rows = np.arange(len(out.indices))[:, None]
    if "log_temperature" in p:
        temperature = tape.exp(p["log_temperature"])
    elif temperature is None:
        temperature = config["temperature"]
    out.gates = tape.softmax(scores[rows, out.indices] / temperature)

    # Each chosen expert separately, then the mixture (spec 3.5, 3.6, 3.8).
    tokens_, d = x.shape
    length = length or tokens_
    seen = x
    if config.get("input_proj", False):
        looked = x if config["output_proj"] == "modulated" else conv(config, p, x, length)
        seen = tape.linear(looked, p["input_proj.weight"])
    if config["output_proj"] == "modulated":
        out.y = modulated(config, p, x, seen, out, length)
        out.auxiliary = auxiliary_loss(config, out, keys, temperature, taking_part)
        return out
    f = config["d_ffn"]
    hidden = tape.gelu(expert_matrix(p, "w1")[out.indices] @ seen.reshape(tokens_, 1, d, 1))  # [T, k, f, 1]
    if config["output_proj"] == "features":
        said = hidden.reshape(tokens_, top_k, f)
    else:
        said = (expert_matrix(p, "w2")[out.indices] @ hidden).reshape(tokens_, top_k, d)
    out.y = (said * out.gates.reshape(tokens_, top_k, 1)).sum(axis=1)
    if config["output_proj"] != "none":
        out.y = tape.linear(out.y, p["output_proj.weight"])
    out.auxiliary = auxiliary_loss(config, out, keys, temperature, taking_part)
    return out


def auxiliary_loss(config, out, keys, temperature, taking_part):
    """Returns the two optional routing losses (section 5) as one number."""
    part = np.ones(len(out.indices), bool) if taking_part is None else taking_part
    loss = tape.variable(0.0)
    if not part.any():
        return loss
    if config.get("balance_loss", 0.0) > 0:
        experts = len(keys)
        fixed = tape.variable(temperature).value  # the temperature learns nothing from this loss
        p = (tape.softmax(out.query @ keys.T / fixed)[part]).sum(axis=0) / part.sum()
        share = np.bincount(out.indices[part].ravel(), minlength=experts) / out.indices[part].size
        loss = loss + (p * share).sum() * (config["balance_loss"] * experts)
    if config.get("entropy_band"):
        low, high = config["entropy_band"]
        gates = out.gates[part]
        entropy = (gates * tape.log(gates)).sum() / -float(part.sum())
        away = min(entropy.value - low, 0.0) + max(entropy.value - high, 0.0)
        edge = low if away < 0 else high
        if away != 0:
            loss = loss + tape.power(entropy - edge, 2.0) * config.get("entropy_coefficient", 0.01)
    return loss
