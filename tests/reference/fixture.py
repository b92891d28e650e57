"""Golden fixtures: safetensors files with a case's inputs and expected results (docs/verify.md)."""

import json
import struct
import zlib

import numpy as np

import keys
import layer
import memory
import tape
import training

# Names of version 0.2 in fixtures written by it (src/core/old_names.cc has the same table for the program).
OLD_NAMES = {"look_back": "conv", "readin": "input_proj", "readout": "output_proj", "readout_init": "output_proj_init",
             "listen": "token_shift"}
OLD_VALUES = {("routing", "random"): "hash", ("modulation", "factor"): "multiplicative",
              ("modulation", "inside"): "additive"}
FORMAT, CHECKSUM, NO_CHECKSUM = "some fixture 2", "crc32", "0" * 8
TYPES = {"F64": np.dtype("<f8"), "I64": np.dtype("<i8")}


def read(path):
    """Reads the tensors by name, and the metadata."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        part = data[8 + size + begin:8 + size + end]
        name = ".".join(OLD_NAMES.get(word, word) for word in name.split("."))
        tensors[name] = np.frombuffer(part, TYPES[entry["dtype"]]).reshape(entry["shape"])
    if "config" in metadata:
        config = {OLD_NAMES.get(name, name): value for name, value in json.loads(metadata["config"]).items()}
        for (name, old), value in OLD_VALUES.items():
            if config.get(name) == old:
                config[name] = value
        metadata["config"] = json.dumps(config)
    return tensors, metadata


def write(path, tensors, metadata):
    header, blobs, at = {"__metadata__": {**metadata, "format": FORMAT, CHECKSUM: NO_CHECKSUM}}, [], 0
    for name, value in tensors.items():
        value = np.ascontiguousarray(value)
        kind = "I64" if value.dtype.kind == "i" else "F64"
        blob = value.astype(TYPES[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    with open(path, "wb") as file:
        file.write(sealed(struct.pack("<Q", len(text)) + text + b"".join(blobs)))


def sealed(data):
    """The file with the checksum of all its bytes, of which the digits of the checksum count as zeros."""
    before = f'"{CHECKSUM}":"'.encode()
    at = data.index(before + NO_CHECKSUM.encode()) + len(before)
    return data[:at] + f"{zlib.crc32(data):08x}".encode() + data[at + len(NO_CHECKSUM):]


def expect(kind, config, inputs):
    """Returns the expected results of a case: tensors without the prefix "expect.", and numbers for the metadata
    (measures of a keys case, and the margin of decisions)."""
    return {"layer": layer_case, "keys": keys_case, "model": model_case, "memory": memory_case}[kind](config, inputs)


def layer_case(config, inputs):
    trained = {name: tape.Variable(value) for name, value in inputs.items()
               if name.startswith(("router.", "output_proj.", "input_proj.", "log_temperature", "hidden.", "gains", "conv."))}
    frozen = {name: value for name, value in inputs.items() if name.startswith("experts.")}
    x = tape.Variable(inputs["x"])
    out = layer.forward(config, {**trained, **frozen}, inputs["keys"], x)
    # Returns a scalar whose gradients are those that dy sends back, plus those of the routing
    # losses.
    tape.backward((out.y * inputs["dy"]).sum() + out.auxiliary, 1.0)
    result = {"queries": out.query.value, "indices": out.indices, "gates": out.gates.value, "y": out.y.value,
              "dx": x.grad}
    result.update({"d." + name: value.grad for name, value in trained.items()})
    return result, {"margin": out.margin}


def keys_case(config, inputs):
    store = keys.KeyStore(config, inputs["keys"], inputs["usage"], inputs["mass"])
    steps = config["steps"]
    result = {}
    for i in range(steps):
        step = {name: inputs[f"step.{i}.{name}"] for name in ("queries", "indices", "gates")}
        store.update(**step, progress=i / (steps - 1) if steps > 1 else 0.0, step=i)
        result.update({f"{i}.keys": store.keys.copy(), f"{i}.usage": store.usage.copy(),
                       f"{i}.mass": store.mass.copy()})
        if config.get("key_ema", 0.0) > 0:
            result[f"{i}.average"] = store.average.copy()
        if config.get("balance_rate", 0.0) > 0:
            result[f"{i}.choice_bias"] = store.bias.copy()
    return result, {"gini": keys.gini(store.usage), "entropy": keys.entropy_bits(store.usage)}


def is_frozen(config, name):
    """True if an input of a model case is a frozen expert matrix."""
    return name.endswith((".experts.w1", ".experts.w2")) and config.get("training", "frozen") != "full"


def training_of(config, inputs):
    """Returns the model of a case before its first step."""
    frozen = {name: value for name, value in inputs.items() if is_frozen(config, name)}
    trained = {name: value for name, value in inputs.items()
               if name not in frozen and name != "tokens" and not name.endswith(".keys")}
    layer_keys = [inputs[f"layers.{i}.keys"] for i in range(config["layers"])] if config["ffn"] == "some" else []
    return training.Training(config, trained, frozen, layer_keys, len(inputs["tokens"]))


def model_case(config, inputs):
    tokens = inputs["tokens"]
    run = training_of(config, inputs)
    result = {}
    _, logits, layers = run.forward(tokens[0])
    result["logits"] = logits.value
    result.update({f"layers.{i}.indices": one.indices for i, one in enumerate(layers)})
    losses, norms = [], []
    for step, batch in enumerate(tokens):
        loss, norm, gradients = run.step(batch)
        losses.append(loss)
        norms.append(norm)
        if step == 0:
            result.update({"d." + name: value for name, value in gradients.items()})
    result.update({"final." + name: value for name, value in run.values.items()})
    for i, store in enumerate(run.stores):
        result.update({f"final.layers.{i}.keys": store.keys, f"final.layers.{i}.usage": store.usage,
                       f"final.layers.{i}.mass": store.mass})
        if config.get("balance_rate", 0.0) > 0:
            result[f"final.layers.{i}.choice_bias"] = store.bias
    result.update({"loss": np.array(losses), "grad_norm": np.array(norms)})
    return result, {"margin": run.margin}


def store_case(name, store):
    """Returns the current store; without a token axis if slots hold one token each."""
    one = len(store.values) == 1
    result = {} if one else {f"{name}.entry_counts": store.entry_counts.copy()}
    result.update({f"{name}.keys": store.keys.copy(), f"{name}.values": store.values[0 if one else ...].copy(),
                   f"{name}.counts": store.counts.copy(), f"{name}.usage": store.usage.copy(),
                   f"{name}.shares": store.weights.copy()})
    return result


# Names of settings in fixtures written before they were renamed.
OLD_MEMORY_NAMES = {"match": "threshold", "sharpness": "beta", "share": "switch_rate", "settle": "merge_evicted",
                    "parts": "partitions", "look": "nprobe"}


def memory_case(config, inputs):
    config = {OLD_MEMORY_NAMES.get(name, name): value for name, value in config.items()}
    store = memory.Memory(config["slots"], inputs["mean"], config["threshold"], config["beta"], config["decay"],
                          config["switch_rate"], config.get("values", 1), config.get("merge_evicted", False),
                          config.get("partitions", 1), config.get("nprobe", 8), config.get("counts", 1.0))
    result = {}
    for i in range(config["windows"]):
        states, targets, model = (inputs[f"window.{i}.{name}"] for name in ("states", "targets", "model_probability"))
        result[f"{i}.memory_probability"], result[f"{i}.probability"] = store.read(states, targets, model)
        store.learn(states, targets)
        result.update(store_case(i, store))
    windows = [(inputs[f"window.{i}.states"], inputs[f"window.{i}.targets"]) for i in range(config["windows"])]
    for round in range(config.get("refinement_passes", 0)):
        store.refine(windows)
        result.update(store_case(f"refined.{round}", store))
    return result, {"margin": store.margin}
