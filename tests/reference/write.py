#!/usr/bin/env python3
"""Writes the golden fixtures, or with --compare tells whether those in the folder are the ones it would write.

Every case is small and made of the project's own random streams, so that the files do not depend on NumPy's generators.
"""

import argparse
import json
import os
import sys
import tempfile

import numpy as np

import check
import fixture
import layer
import streams

# Assignments must not depend on rounding: of a case's draws, the first one whose closest decision has at least this
# margin is used. A layer's output in bf16 is compared directly, so its assignments must survive bf16 too; decisions of
# a memory are drawn until they are equal for states in bf16 (survives_bf16).
LEAST_MARGIN = {"layer": 0.02, "keys": 0.0, "model": 1e-3, "memory": 1e-3}


class Draw:
    """Draws random inputs of one case. Numbers are single-precision values, so that no precision rounds the inputs."""

    def __init__(self, case, attempt):
        self.name, self.attempt = case, attempt

    def stream(self, name):
        return streams.Stream(self.attempt, f"{self.name}/{name}")

    def normal(self, name, *shape, scale=1.0):
        values = self.stream(name).normal(np.arange(int(np.prod(shape)))).reshape(shape) * scale
        return values.astype(np.float32).astype(float)

    def uniform(self, name, *shape, low=0.0, high=1.0):
        values = low + (high - low) * self.stream(name).uniform(np.arange(int(np.prod(shape)))).reshape(shape)
        return values.astype(np.float32).astype(float)

    def directions(self, name, *shape):
        rows = self.normal(name, *shape)
        return (rows / np.sqrt((rows**2).sum(axis=-1, keepdims=True))).astype(np.float32).astype(float)

    def weight(self, name, out, inputs, experts=()):
        bound = 1.0 / np.sqrt(inputs)
        return self.uniform(name, *experts, out, inputs, low=-bound, high=bound)

    def linear(self, name, out, inputs):
        return {name + ".weight": self.weight(name + ".weight", out, inputs),
                name + ".bias": self.normal(name + ".bias", out, scale=0.1)}


def layer_parameters(config, draw, prefix=""):
    """Returns router, input and output projection, temperature and experts of one layer."""
    d, f, experts = config["d_model"], config["d_ffn"], config["experts"]
    c = config.get("query_dim", 0) or d
    if config["router"] == "mlp":
        hidden = round(config["router_mult"] * d)
        p = {**draw.linear(prefix + "router.0", hidden, d), **draw.linear(prefix + "router.1", c, hidden)}
    else:
        p = draw.linear(prefix + "router.0", c, d)
    near_identity = lambda name: {prefix + name: np.eye(d) + draw.normal(prefix + name, d, d, scale=0.125)}
    if config.get("input_proj", False):
        p.update(near_identity("input_proj.weight"))
    if config["output_proj"] == "linear":
        p.update(near_identity("output_proj.weight"))
    if config.get("conv", 0) > 0:
        p[prefix + "conv.weight"] = draw.normal(prefix + "conv.weight", config["conv"], d, scale=0.5)
    if config["output_proj"] == "modulated":
        p.update(draw.linear(prefix + "hidden", f, d))
        p[prefix + "gains"] = 0.25 + draw.normal(prefix + "gains", experts, f, scale=0.25)
    if config["output_proj"] in ("features", "modulated"):
        p[prefix + "output_proj.weight"] = draw.weight(prefix + "output_proj.weight", d, f)
    if config.get("temperature") == "learned":
        p[prefix + "log_temperature"] = np.array([np.float32(np.log(config["train_temp"]))], float)
    matrices = {"w1": (f, d), "w2": (d, f)}
    if config["output_proj"] in ("features", "modulated"):
        del matrices["w2"]
    if not config.get("use_library", True):
        del matrices["w1"]
    stored = config.get("init") != "hadamard" or config.get("training") == "full"
    for name, (out, inputs) in matrices.items():
        name = prefix + "experts." + name
        if stored:
            p[name] = draw.weight(name, out, inputs, (experts,))
        if config.get("training") == "lora":
            rank = config["lora_rank"]
            p[name + ".lora_a"] = draw.weight(name + ".lora_a", rank, inputs, (experts,))
            p[name + ".lora_b"] = draw.normal(name + ".lora_b", experts, out, rank, scale=0.125)
    p[prefix + "keys"] = draw.directions(prefix + "keys", experts, c)
    return p


def layer_inputs(config, draw):
    tokens, d = config["tokens"], config["d_model"]
    inputs = {"x": draw.normal("x", tokens, d), "dy": draw.normal("dy", tokens, d), **layer_parameters(config, draw)}
    if config.get("equal_keys"):  # experts on the axes, each twice: exactly equal scores
        c = inputs["keys"].shape[1]
        inputs["keys"] = np.eye(c)[np.arange(config["experts"]) % (config["experts"] // 2)]
    return inputs


def keys_inputs(config, draw):
    experts, k, tokens = config["experts"], config["top_k"], config["tokens"]
    c = config.get("query_dim", 0) or config["d_model"]
    keys = draw.directions("keys", experts, c) * draw.uniform("lengths", experts, 1, low=0.25, high=1.25)
    usage = draw.uniform("usage", experts, low=-1.0, high=3.0).clip(min=0.0)  # some have none yet
    inputs = {"keys": keys, "usage": usage, "mass": usage * draw.uniform("mass", experts)}
    favour = np.where(np.arange(experts) % 3 == 0, -4.0, 0.0)  # every third expert is never chosen
    for i in range(config["steps"]):
        queries = draw.directions(f"queries.{i}", tokens, c)
        scores = queries @ keys.T
        indices = layer.choose(scores + favour, k)
        best = np.exp(np.take_along_axis(scores, indices, 1) / 0.5)
        inputs.update({f"step.{i}.queries": queries, f"step.{i}.indices": indices,
                       f"step.{i}.gates": (best / best.sum(axis=1, keepdims=True)).astype(np.float32).astype(float)})
    return inputs


def model_inputs(config, draw):
    d, vocab, rows, length = config["d_model"], config["vocab"], config["batch"], config["seq_len"]
    p = {"embed.weight": draw.normal("embed.weight", vocab, d)}
    norm = lambda name: {name + ".weight": 1.0 + draw.normal(name + ".weight", d, scale=0.125),
                         name + ".bias": draw.normal(name + ".bias", d, scale=0.125)}
    for i in range(config["layers"]):
        name = f"layers.{i}."
        p.update({**draw.linear(name + "attn.qkv", 3 * d, d), **draw.linear(name + "attn.out", d, d)})
        p.update(norm(name + "norm1"))
        if not (config["norm"] == "pre" and config["ffn"] == "none"):
            p.update(norm(name + "norm2"))
        if config["ffn"] == "dense":
            hidden = round(config["dense_mult"] * d)
            p.update({**draw.linear(name + "ffn.0", hidden, d), **draw.linear(name + "ffn.1", d, hidden)})
            if config.get("conv", 0) > 0:
                p[name + "conv.weight"] = draw.normal(name + "conv.weight", config["conv"], d, scale=0.5)
        if config["ffn"] == "some":
            p.update(layer_parameters(config, draw, name))
    if config["norm"] == "pre":
        p.update(norm("final_norm"))
    p.update(draw.linear("head", vocab, d))
    # Documents of various lengths: truncated ones without [EOS] (2), short ones with padding (1).
    steps = config["steps"]
    tokens = np.full((steps, rows, length), config["pad_id"])
    ids = draw.stream("tokens")
    number = 0
    for row in tokens.reshape(-1, length):
        for at in range(2 + ids.below(number, length)):
            if at < length:
                row[at] = 3 + ids.below(number + 1 + at, vocab - 3)
        if at + 1 < length:
            row[at + 1] = config["eos_id"]
        number += length + 2
    return {**p, "tokens": tokens}


def memory_inputs(config, draw):
    d, positions, kinds = config["d_model"], config["positions"], config["kinds"]
    places = draw.directions("places", kinds, d)
    pick = draw.stream("kinds")
    inputs = {"mean": draw.normal("mean", d, scale=0.25)}
    for i in range(config["windows"]):
        # States come from a few clusters, each mostly followed by its own token.
        chosen = np.array([pick.below(i * positions + t, kinds) for t in range(positions)])
        noise = draw.normal(f"states.{i}", positions, d, scale=config["noise"])
        stray = draw.uniform(f"stray.{i}", positions) < 0.2
        inputs.update({
            f"window.{i}.states": (inputs["mean"] + 2.0 * places[chosen] + noise).astype(np.float32).astype(float),
            f"window.{i}.targets": np.where(stray, (chosen + 1) % kinds, chosen) + 3,
            f"window.{i}.model_probability": draw.uniform(f"model.{i}", positions, low=0.01, high=0.5)})
    return inputs


# Settings of the draw only: number and kind of positions. They are not part of a fixture's config.
OF_THE_DRAW = ("tokens", "equal_keys", "positions", "kinds", "noise")
INPUTS = {"layer": layer_inputs, "keys": keys_inputs, "model": model_inputs, "memory": memory_inputs}

BASE = {
    "layer": {"d_model": 8, "experts": 6, "d_ffn": 7, "top_k": 2, "router": "linear", "router_mult": 1.5,
              "output_proj": "none", "temperature": 0.7, "tokens": 5},
    "keys": {"d_model": 6, "experts": 7, "top_k": 2, "alpha": 0.05, "beta": 0.02, "delta": 0.1, "ema_decay": 0.9,
             "theta_percentile": 0.3, "decay_warmup": 1, "constraint": "normalize", "steps": 3, "tokens": 11},
    "model": {"vocab": 13, "d_model": 8, "layers": 2, "heads": 2, "seq_len": 7, "batch": 2, "norm": "post",
              "ffn": "some", "experts": 5, "d_ffn": 6, "top_k": 2, "router": "linear", "router_mult": 1.5,
              "output_proj": "none", "temperature": 0.5, "alpha": 0.05, "beta": 0.02, "delta": 0.1, "ema_decay": 0.9,
              "theta_percentile": 0.3, "decay_warmup": 1, "constraint": "normalize", "count_pads": False, "steps": 3,
              "pad_id": 1, "eos_id": 2, "lr": 0.001, "schedule": "cosine", "weight_decay": 0.1,
              "adam_betas": [0.9, 0.95], "adam_eps": 1e-5, "clip": 1.0},
    "memory": {"slots": 24, "d_model": 6, "threshold": 0.8, "beta": 20.0, "decay": 0.01, "switch_rate": 0.01, "windows": 4,
               "positions": 9, "kinds": 5, "noise": 0.25},
}

# Changes of each case relative to the base of its kind; the name begins with the kind.
CASES = {
    "layer-linear": {},
    "layer-mlp": {"router": "mlp", "tokens": 7},
    "layer-one-token": {"router": "mlp", "tokens": 1, "top_k": 3},
    "layer-top1": {"top_k": 1, "d_ffn": 9},
    "layer-every-expert": {"top_k": 4, "experts": 4, "tokens": 4, "d_model": 10},
    "layer-equal-scores": {"equal_keys": True, "top_k": 4, "experts": 8},
    "layer-output-proj-linear": {"output_proj": "linear", "router": "mlp"},
    "layer-output-proj-features": {"output_proj": "features", "d_ffn": 11},
    "layer-cold": {"temperature": 0.05, "top_k": 3},
    "layer-balance": {"balance_loss": 0.5},
    "layer-entropy-low": {"entropy_band": [0.65, 0.69], "entropy_coefficient": 4.0, "temperature": 0.2},
    "layer-entropy-high": {"entropy_band": [0.1, 0.3], "entropy_coefficient": 4.0, "top_k": 3},
    "layer-learned-temperature": {"temperature": "learned", "train_temp": 0.3},
    "layer-query-dim": {"query_dim": 5, "router": "mlp"},
    "layer-input-proj": {"input_proj": True, "output_proj": "features", "query_dim": 3, "tokens": 4},
    "layer-input-proj-linear": {"input_proj": True, "output_proj": "linear", "router": "mlp"},
    "layer-modulated": {"output_proj": "modulated", "tokens": 6},
    "layer-modulated-inside": {"output_proj": "modulated", "modulation": "additive", "modulation_scale": 1.0, "input_proj": True,
                               "top_k": 3},
    "layer-modulated-token-shift": {"output_proj": "modulated", "modulation": "additive", "token_shift": 3, "conv": 1,
                               "tokens": 7},
    "layer-modulated-gains": {"output_proj": "modulated", "use_library": False},
    "layer-input-proj-conv": {"input_proj": True, "output_proj": "features", "conv": 2, "tokens": 6},
    "layer-hadamard": {"init": "hadamard", "library_seed": 3},
    "layer-hadamard-two": {"init": "hadamard", "hadamard_transforms": 2, "d_model": 10, "d_ffn": 21,
                           "output_proj": "linear", "router": "mlp"},
    "layer-hadamard-features": {"init": "hadamard", "output_proj": "features", "hadamard_transforms": 3, "d_ffn": 19},
    "layer-hadamard-modulated": {"init": "hadamard", "output_proj": "modulated", "d_model": 10, "d_ffn": 18, "top_k": 3},
    "layer-hadamard-token-shift": {"init": "hadamard", "output_proj": "modulated", "modulation": "additive",
                                   "token_shift": 3, "conv": 1, "tokens": 7, "hadamard_transforms": 2},
    "layer-partitions": {"experts": 11, "key_partitions": 4, "key_probe": 2, "tokens": 6, "top_k": 3},
    "keys-normalize": {},
    "keys-normalize-used": {"constraint": "normalize_used", "top_k": 3},
    "keys-clamp": {"constraint": "clamp", "beta_inertia": "max"},
    "keys-free": {"constraint": "free", "top_k": 1},
    "keys-constraint-last": {"constraint_order": "last"},
    "keys-cumulative": {"usage": "cumulative", "theta": 4.0},
    "keys-flux": {"usage": "flux", "alpha": 0.3, "constraint": "clamp"},
    "keys-alpha-floor": {"alpha_floor": 0.03, "constraint": "clamp"},
    "keys-clip": {"clip_delta": 0.05, "alpha": 0.3, "constraint": "free"},
    "keys-mean": {"key_ema": 0.7, "constraint": "clamp"},
    "keys-anneal-linear": {"beta": 0.2, "beta_anneal": {"shape": "linear", "start": 1.0, "end": 0.25}},
    "keys-anneal-cosine": {"beta": 0.2, "beta_anneal": {"shape": "cosine", "start": 1.0, "end": 0.0}},
    "keys-anneal-exponential": {"beta": 0.2, "beta_anneal": {"shape": "exponential", "start": 1.0, "end": 0.01}},
    "keys-no-alpha": {"use_alpha": False, "constraint": "clamp"},
    "keys-no-beta": {"use_beta": False, "constraint": "clamp"},
    "keys-no-delta": {"use_delta": False, "constraint": "clamp"},
    "keys-query-dim": {"query_dim": 4, "top_k": 3},
    "keys-fraction": {"update_fraction": 0.5, "seed": 3},
    "keys-rebirth": {"respawn_threshold": 0.6, "constraint": "clamp", "seed": 7, "steps": 4},
    "keys-rebirth-mean": {"respawn_threshold": 0.6, "constraint": "clamp", "key_ema": 0.5, "update_fraction": 0.8},
    "keys-too-few-for-rebirth": {"respawn_threshold": 0.9, "constraint": "free", "tokens": 2},
    "keys-balance": {"balance_rate": 0.05, "use_alpha": False, "use_beta": False, "use_delta": False, "tokens": 12},
    "keys-balance-slack": {"balance_rate": 0.05, "balance_slack": 0.55, "use_alpha": False, "use_beta": False,
                           "use_delta": False, "tokens": 12},
    "keys-balance-anneal": {"balance_rate": 0.05, "balance_anneal": {"shape": "cosine", "start": 1.0, "end": 0.1},
                            "use_alpha": False, "use_beta": False, "use_delta": False, "tokens": 12},
    "keys-balance-rebirth": {"balance_rate": 0.05, "respawn_threshold": 0.6, "constraint": "clamp", "seed": 7,
                             "steps": 4},
    "model-padded": {"count_pads": True, "router": "mlp"},
    "model-masked": {"constraint": "clamp", "beta_inertia": "max"},
    "model-pre-norm": {"norm": "pre", "output_proj": "linear"},
    "model-pre-norm-rope": {"norm": "pre", "position": "rope", "output_proj": "features", "count_pads": True},
    "model-rope": {"position": "rope"},
    "model-dense": {"ffn": "dense", "dense_mult": 1.5},
    "model-dense-pre-norm": {"ffn": "dense", "dense_mult": 2.0, "norm": "pre", "count_pads": True, "position": "rope"},
    "model-no-ffn": {"ffn": "none"},
    "model-no-ffn-pre-norm": {"ffn": "none", "norm": "pre"},
    "model-not-causal": {"causal": False, "count_pads": True},
    "model-grounded": {"ground": 0.3, "layers": 3, "router": "mlp", "d_ffn": 4},
    "model-output-proj": {"output_proj": "linear"},
    "model-features": {"output_proj": "features", "clip": 0.0, "schedule": "constant"},
    "model-schedules": {"topk_warmup": 0.4, "update_every": 2, "beta_layer_scale": [1.0, 0.5], "steps": 4,
                        "beta_anneal": {"shape": "cosine", "start": 1.0, "end": 0.0}, "beta": 0.2},
    "model-frozen-layer": {"frozen_layers": [1], "use_delta": False},
    "model-auxiliary": {"balance_loss": 0.1, "entropy_band": [0.3, 0.5], "entropy_coefficient": 0.5},
    "model-key-mean": {"key_ema": 0.5, "usage": "cumulative", "alpha": 0.3},
    "model-flux": {"usage": "flux", "clip_delta": 0.02, "constraint_order": "last"},
    "model-learned-temperature": {"temperature": "learned", "train_temp": 0.3},
    "model-hash-routing": {"routing": "hash", "library_seed": 5},
    "model-lora": {"training": "lora", "lora_rank": 2},
    "model-full": {"training": "full", "output_proj": "linear"},
    "model-full-features": {"training": "full", "output_proj": "features", "count_pads": True},
    "model-query-dim": {"query_dim": 5, "count_pads": True},
    "model-input-proj": {"input_proj": True, "query_dim": 3, "output_proj": "features", "router": "mlp"},
    "model-input-proj-lora": {"input_proj": True, "output_proj": "linear", "training": "lora", "lora_rank": 1},
    "model-fraction": {"update_fraction": 0.6, "seed": 11},
    "model-rebirth": {"respawn_threshold": 0.97, "constraint": "clamp", "seed": 2, "alpha": 0.3},
    "model-balance": {"balance_rate": 0.4, "use_alpha": False, "use_beta": False, "use_delta": False},
    "model-dense-conv": {"ffn": "dense", "dense_mult": 1.0, "conv": 3},
    "model-modulated": {"output_proj": "modulated", "conv": 2, "balance_rate": 0.05, "temperature": "learned",
                        "train_temp": 0.3, "query_dim": 4},
    "model-modulated-token-shift": {"output_proj": "modulated", "token_shift": 3, "modulation": "additive", "norm": "pre",
                               "count_pads": True, "training": "full"},
    "model-hadamard": {"init": "hadamard", "library_seed": 4},
    "model-hadamard-lora": {"init": "hadamard", "training": "lora", "lora_rank": 2, "hadamard_transforms": 2},
    "model-hadamard-token-shift": {"init": "hadamard", "output_proj": "modulated", "token_shift": 3, "balance_rate": 0.05},
    "model-partitions": {"experts": 12, "key_partitions": 5, "key_probe": 2, "balance_rate": 0.05},
    "model-dropout": {"dropout": 0.2, "seed": 6},
    "model-dropout-dense": {"ffn": "dense", "dense_mult": 1.0, "dropout": 0.1, "norm": "pre", "count_pads": True, "seed": 7},
    "memory-roomy": {},
    "memory-full": {"slots": 7, "noise": 0.4, "decay": 0.1, "switch_rate": 0.05, "windows": 6},
    "memory-one-window": {"windows": 1, "slots": 3},
    "memory-sharp": {"beta": 150.0, "threshold": 0.5},
    "memory-merge": {"slots": 7, "noise": 0.4, "decay": 0.1, "windows": 6, "merge_evicted": True},
    "memory-partitions": {"slots": 24, "partitions": 4, "nprobe": 2, "noise": 0.4, "windows": 6},
    "memory-partitions-merge": {"slots": 16, "partitions": 4, "nprobe": 2, "noise": 0.4, "decay": 0.1, "windows": 6, "values": 3,
                           "merge_evicted": True},
    "memory-counts": {"slots": 7, "noise": 0.4, "windows": 6, "values": 3, "merge_evicted": True, "counts": 0.5},
    "memory-refined": {"slots": 9, "noise": 0.4, "windows": 4, "values": 3, "merge_evicted": True, "refinement_passes": 2},
    "memory-refined-partitions": {"slots": 16, "partitions": 4, "nprobe": 2, "noise": 0.4, "windows": 5, "values": 3,
                             "merge_evicted": True, "refinement_passes": 2},
    "memory-refined-one-token": {"slots": 12, "noise": 0.4, "windows": 4, "refinement_passes": 2},
    "memory-several": {"slots": 7, "noise": 0.4, "decay": 0.1, "windows": 6, "values": 3, "merge_evicted": True},
}


# Cases of settings that the program does not support yet, in a separate folder.
NEXT = ()


def rounded_to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32).astype(float)


def survives_bf16(config, inputs, expected):
    """True if a memory makes the same decisions with states in bf16. A different decision leads to other slots,
    which no tolerance of the results can cover."""
    rounded = {name: rounded_to_bf16(value) if name.endswith(".states") else value for name, value in inputs.items()}
    again, numbers = fixture.expect("memory", config, rounded)
    same = all(np.array_equal(again[name], value) for name, value in expected.items()
               if name.endswith((".values", ".counts", ".entry_counts")))
    return same and numbers["margin"] >= LEAST_MARGIN["memory"]


def file_of(name):
    return os.path.join("fixtures-next" if any(part in name for part in NEXT) else "fixtures", name + ".safetensors")


def make(name):
    """Returns the tensors and metadata of a case."""
    kind = name.split("-")[0]
    config = {**BASE[kind], **CASES[name]}
    for attempt in range(1000):
        inputs = INPUTS[kind](config, Draw(name, attempt))
        expected, numbers = fixture.expect(kind, config, inputs)
        clear = numbers.get("margin", np.inf) >= LEAST_MARGIN[kind] or config.get("equal_keys")
        if clear and (kind != "memory" or survives_bf16(config, inputs, expected)):
            break
    else:
        sys.exit(f"{name}: no draw of a thousand leaves the choices clear of rounding")
    config = {key: value for key, value in config.items() if key not in OF_THE_DRAW}
    metadata = {"kind": kind, "config": json.dumps(config)}
    metadata.update({key: repr(value) for key, value in numbers.items()})
    return {**inputs, **{"expect." + key: value for key, value in expected.items()}}, metadata


def compare(written, root, tolerance):
    """Returns the differences between the files just written (by path below the root) and those below `root`."""
    have = {os.path.join(folder, name) for folder in ("fixtures", "fixtures-next")
            if os.path.isdir(os.path.join(root, folder)) for name in os.listdir(os.path.join(root, folder))}
    complaints = [f"{name} is missing" for name in written if name not in have]
    complaints += [f"{name} is not one of the cases" for name in sorted(have - written.keys())]
    for name, path in written.items():
        if name not in have:
            continue
        tensors, metadata = fixture.read(path)
        committed, committed_metadata = fixture.read(os.path.join(root, name))
        if committed.keys() != tensors.keys() or committed_metadata.get("config") != metadata["config"]:
            complaints.append(f"{name} has other tensors or another config")
            continue
        for key, value in tensors.items():
            error = check.error_of(committed[key], value)
            # Inputs are drawn with exact arithmetic; results may round differently with another
            # NumPy version.
            if error > (tolerance if key.startswith("expect.") else 0.0):
                complaints.append(f"{name}: {key} differs by {error:.1e}")
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.abspath(__file__)),
                        help="where the folders fixtures and fixtures-next are (default: beside this file)")
    parser.add_argument("--compare", action="store_true", help="change nothing, compare with what is there")
    parser.add_argument("--tolerance", type=float, default=1e-11, help="for --compare (default: 1e-11)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        target = temporary if options.compare else options.root
        written = {}
        for name in CASES:
            path = os.path.join(target, file_of(name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fixture.write(path, *make(name))
            written[file_of(name)] = path
        if not options.compare:
            return
        complaints = compare(written, options.root, options.tolerance)
    for complaint in complaints:
        print(complaint)
    print(f"{len(written)} fixtures written anew, {len(complaints)} differences")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
