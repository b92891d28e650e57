#!/usr/bin/env python3
"""Self-tests of the reference: random numbers, gradients by finite differences, and the effect of every case."""

import copy
import json
import sys

import numpy as np

import check
import fixture
import layer
import streams
import tape
import training
import write

failures = []


def expect(what, good):
    if not good:
        failures.append(what)
        print("FAILED", what)


def known_random_numbers():
    """Checks Philox 4x32-10 for counter and key 0, and for all bits set, against the published values (Random123)."""
    zero = streams.philox(0, np.array([0]), 0)[0]
    expect("philox of zeros", [hex(w) for w in zero] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"])
    ones = streams.philox(2**64 - 1, np.array([2**64 - 1], np.uint64), 2**64 - 1)[0]
    expect("philox of ones", [hex(w) for w in ones] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"])
    numbers = streams.Stream(1, "name").normal(np.arange(20000))
    expect("normal numbers", abs(numbers.mean()) < 0.03 and abs(numbers.std() - 1.0) < 0.03)


def slopes(function, values, count):
    """Returns the derivative of function() along single elements of an array that it reads: (index, slope) pairs."""
    pick = streams.Stream(0, "finite differences")
    for n in range(min(count, values.size)):
        at = np.unravel_index(pick.below(n, values.size), values.shape)
        kept, step = values[at], 1e-5
        ends = []
        for value in (kept + step, kept - step):
            values[at] = value
            ends.append(function())
        values[at] = kept
        yield at, (ends[0] - ends[1]) / (2.0 * step)


def compare_slopes(what, gradient, found):
    scale = max(1e-3, np.abs(gradient).max())
    for at, slope in found:
        expect(f"{what}{list(at)}: gradient {gradient[at]:.6e}, finite difference {slope:.6e}",
               abs(gradient[at] - slope) < 2e-7 * scale + 1e-9)


def gradients_of_a_layer(name):
    """Also checks with a query from the layer below, which a fixture of a single layer does not have."""
    tensors, metadata = write.make(name)
    config = {**json.loads(metadata["config"]), "ground": 0.4}
    inputs = {key: np.array(value) for key, value in tensors.items() if not key.startswith("expect.")}
    keys = inputs.pop("keys")
    below = streams.Stream(0, "below").normal(np.arange(len(inputs["x"]) * keys.shape[1]))
    inputs["below"] = below.reshape(len(inputs["x"]), -1)
    dy = inputs.pop("dy")

    def run():
        p = {key: tape.Variable(value) for key, value in inputs.items()}
        out = layer.forward(config, p, keys, p["x"], below=p["below"])
        return p, (out.y * dy).sum() + out.auxiliary

    p, total = run()
    tape.backward(total, 1.0)
    for key in inputs:
        compare_slopes(f"{name}: {key}", p[key].grad, slopes(lambda: float(run()[1].value), inputs[key], 4))


def gradients_of_a_model(name):
    tensors, metadata = write.make(name)
    config = json.loads(metadata["config"])
    inputs = {key: value for key, value in tensors.items() if not key.startswith("expect.")}
    run = fixture.training_of(config, inputs)

    def loss():
        targets = training.targets_of(config, inputs["tokens"][0])
        part = None if config["count_pads"] else targets.ravel() >= 0
        drop = training.dropout(config, 0, inputs["tokens"][0])
        _, logits, results = run.forward(inputs["tokens"][0], taking_part=part, drop=drop)
        return float(training.mean_loss(logits, targets).value) + sum(float(one.auxiliary.value) for one in results)

    gradients = run.gradients(inputs["tokens"][0])[1]
    for key, gradient in gradients.items():
        compare_slopes(f"{name}: {key}", gradient, slopes(loss, run.values[key], 2))


# Some settings act only together with these, which the case changes as well.
HELPERS = {"train_temp", "entropy_coefficient", "lora_rank", "seed", "library_seed", "router_mult", "dense_mult"}
SHAPES = {"experts", "d_ffn", "top_k", "d_model", "layers", "query_dim", "windows", "slots", "steps", "router",
          "output_proj", "input_proj", "ffn", "norm", "training", "temperature", "use_library", "conv", "init"}

NOTHING_HAPPENS = {("keys-too-few-for-rebirth", "respawn_threshold")}  # fewer positions than dead keys: none is reborn


def every_setting_matters(name):
    """Checks that without its setting, a case gives different results for the same inputs."""
    kind = name.split("-")[0]
    tensors, metadata = write.make(name)
    config = json.loads(metadata["config"])
    inputs = {key: value for key, value in tensors.items() if not key.startswith("expect.")}
    for key in write.CASES[name]:
        if key in HELPERS | SHAPES or key in write.OF_THE_DRAW:
            continue
        plain = copy.deepcopy(config)
        if key in write.BASE[kind]:
            plain[key] = write.BASE[kind][key]
        else:
            del plain[key]
        got, _ = fixture.expect(kind, plain, inputs)
        expected = {one[len("expect."):]: value for one, value in tensors.items() if one.startswith("expect.")}
        same = expected.keys() == got.keys() and all(check.error_of(expected[one], got[one]) < 1e-6 for one in got)
        expect(f"{name}: the setting {key} changes nothing", not same or (name, key) in NOTHING_HAPPENS)


def main():
    known_random_numbers()
    for name in ("layer-mlp", "layer-linear", "layer-balance", "layer-entropy-low", "layer-learned-temperature",
                 "layer-input-proj", "layer-input-proj-linear", "layer-modulated", "layer-modulated-inside",
                 "layer-modulated-token-shift", "layer-modulated-gains", "layer-input-proj-conv"):
        gradients_of_a_layer(name)
    for name in ("model-padded", "model-grounded", "model-pre-norm-rope", "model-dense", "model-no-ffn-pre-norm",
                 "model-lora", "model-full-features", "model-learned-temperature", "model-input-proj", "model-dense-conv",
                 "model-modulated", "model-modulated-token-shift", "model-dropout", "model-dropout-dense", "model-partitions"):
        gradients_of_a_model(name)
    for name in write.CASES:
        every_setting_matters(name)
    print(f"{len(failures)} failures" if failures else "all checks passed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
