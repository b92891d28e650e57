"""The SoME layer (specification, section 3). A "config" is a dictionary with the names of a recipe's keys."""

import numpy as np

import streams
import tape


def normalize(v):
    """v / max(|v|, 1e-12) along the last axis; a length that was cut off is a constant."""
    return v / tape.power(tape.at_least((v * v).sum(axis=-1, keepdims=True), 1e-24), 0.5)


def queries(config, p, x, below):
    """3.1 and 3.2. p: the layer's parameters by name; below: the queries of the layer below, or None."""
    raw = tape.linear(x, p["router.0.weight"], p["router.0.bias"])
    if config["router"] == "mlp":
        raw = tape.linear(tape.gelu(raw), p["router.1.weight"], p["router.1.bias"])
    q = normalize(raw)
    if config.get("ground", 0.0) > 0 and below is not None:
        q = normalize(q + below * config["ground"])
    return q


def choose(scores, k):
    """3.3: the k highest scores, best first, the lower expert among equals (the sort keeps their order)."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :k]


def margin(scores, k):
    """How far apart the closest two scores are that decide a choice or its order: what rounding must not reach."""
    best = -np.sort(-scores, axis=-1)[:, :k + 1]
    return float((best[:, :-1] - best[:, 1:]).min()) if best.shape[1] > 1 else float("inf")


def expert_matrix(p, name):
    """The matrices [E, out, in] of all experts: frozen (a constant), with a low-rank part, or learnt (a variable)."""
    w = tape.variable(p["experts." + name])
    if "experts." + name + ".lora_a" in p:
        w = w + p["experts." + name + ".lora_b"] @ p["experts." + name + ".lora_a"]
    return w


class Result:
    """What a layer computed: query, indices, margin, gates, output y, and the losses on routing (auxiliary)."""


def forward(config, p, keys, x, top_k=None, temperature=None, below=None, tokens=None, layer=0, taking_part=None,
            bias=0.0):
    """One layer for the states x [T, d]. keys: what is routed by, [E, c]; tokens: ids, for random routing only; bias: [E],
    added to the scores for the choice alone.

    top_k and temperature replace those of the configuration; taking_part [T] says which positions the losses on
    routing look at (None: all)."""
    out = Result()
    top_k = top_k or config["top_k"]
    out.query = queries(config, p, x, below)
    scores = out.query @ keys.T
    if config.get("routing", "keys") == "random":
        chosen = {t: streams.random_experts(config.get("library_seed", 0), layer, int(t), len(keys), top_k)
                  for t in set(tokens)}
        out.indices, out.margin = np.array([chosen[t] for t in tokens]), float("inf")
    else:
        out.indices, out.margin = choose(scores.value + bias, top_k), margin(scores.value + bias, top_k)

    # 3.4: gates of the chosen
    rows = np.arange(len(out.indices))[:, None]
    if "log_temperature" in p:
        temperature = tape.exp(p["log_temperature"])
    elif temperature is None:
        temperature = config["temperature"]
    out.gates = tape.softmax(scores[rows, out.indices] / temperature)

    # 3.5, 3.6, 3.8: each chosen expert on its own, then the mixture
    seen = tape.linear(x, p["readin.weight"]) if config.get("readin", False) else x
    tokens_, d = x.shape
    f = config["d_ffn"]
    hidden = tape.gelu(expert_matrix(p, "w1")[out.indices] @ seen.reshape(tokens_, 1, d, 1))  # [T, k, f, 1]
    if config["readout"] == "features":
        said = hidden.reshape(tokens_, top_k, f)
    else:
        said = (expert_matrix(p, "w2")[out.indices] @ hidden).reshape(tokens_, top_k, d)
    out.y = (said * out.gates.reshape(tokens_, top_k, 1)).sum(axis=1)
    if config["readout"] != "none":
        out.y = tape.linear(out.y, p["readout.weight"])
    out.auxiliary = auxiliary_loss(config, out, keys, temperature, taking_part)
    return out


def auxiliary_loss(config, out, keys, temperature, taking_part):
    """The two optional losses on routing (section 5), as one number."""
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
