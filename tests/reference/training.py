"""Loss, AdamW and whole training steps (specification, section 5)."""

import math

import numpy as np

import keys
import streams
import tape
import transformer


def targets_of(config, tokens):
    """Returns the target of each position of the padded rows; -1: none."""
    targets = np.concatenate([tokens[:, 1:], np.full((len(tokens), 1), -1)], axis=1)
    if not config["count_pads"]:
        nothing = (targets == config["pad_id"]) | (tokens == config["pad_id"]) | (tokens == config["eos_id"])
        targets = np.where(nothing, -1, targets)
    return targets


def mean_loss(logits, targets):
    """Returns the mean cross-entropy in nats over the predicted positions."""
    rows = logits.reshape(-1, logits.shape[-1])
    predicted = np.flatnonzero(targets.ravel() >= 0)
    rows = rows[predicted]
    largest = rows.value.max(axis=-1, keepdims=True)
    log_sum = tape.log(tape.exp(rows - largest).sum(axis=-1)) + largest[:, 0]
    picked = rows[np.arange(len(predicted)), targets.ravel()[predicted]]
    return (log_sum - picked).sum() / float(len(predicted))


def learning_rate(config, step, steps):
    warmup = config.get("warmup_steps", 0)
    if step < warmup:
        return config["lr"] * (step + 1) / warmup
    if config.get("schedule", "cosine") == "constant":
        return config["lr"]
    return config["lr"] * (1.0 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))) / 2.0


class AdamW:
    def __init__(self, config, names):
        self.config, self.moments, self.step = config, {name: (0.0, 0.0) for name in names}, 0

    def update(self, values, gradients, norm, lr):
        """Applies AdamW to `values` in place. norm: norm of all gradients together."""
        self.step += 1
        beta1, beta2 = self.config["adam_betas"]
        clip = self.config["clip"]
        shrink = min(1.0, clip / (norm + 1e-6)) if clip > 0 else 1.0
        for name, gradient in gradients.items():
            g = gradient * shrink
            m, v = self.moments[name]
            m, v = beta1 * m + (1.0 - beta1) * g, beta2 * v + (1.0 - beta2) * g * g
            self.moments[name] = m, v
            corrected = (m / (1.0 - beta1**self.step)) / (np.sqrt(v / (1.0 - beta2**self.step)) +
                                                         self.config["adam_eps"])
            values[name] = values[name] * (1.0 - lr * self.config["weight_decay"]) - lr * corrected


def row_numbers(config, tokens):
    """Of the rows as the program lays them out: without padding where that is not counted."""
    return np.arange(tokens.size) if config["count_pads"] else np.cumsum(tokens.ravel() != config["pad_id"]) - 1


def dropout(config, step, tokens):
    """drop(place, x) of a step, for x [B, S, d] (specification, section 2, "Dropout")."""
    threshold = min(round(config.get("dropout", 0.0) * 65536), 65535)
    if threshold == 0:
        return lambda place, x: x
    key = streams.Stream(config["seed"], "dropout").bits64(step)
    rows = np.maximum(row_numbers(config, tokens), 0)

    def drop(place, x):
        groups = (x.shape[-1] + 7) // 8
        words = streams.philox(key, (rows[:, None] * 8192 + np.arange(groups)).ravel(), place)
        pieces = np.stack([words & np.uint64(0xFFFF), words >> np.uint64(16)], axis=-1)  # 8 per block
        kept = pieces.reshape(len(rows), groups * 8)[:, :x.shape[-1]] >= threshold
        return x * (kept.reshape(x.shape) * (65536.0 / (65536 - threshold)))

    return drop


class Training:
    """A model in training. parameters: trained arrays by checkpoint name; experts: frozen ones; keys: one array per
    layer. steps: total number, for the schedules."""

    def __init__(self, config, parameters, experts, layer_keys, steps):
        self.config, self.experts, self.steps = config, experts, steps
        self.values = {name: np.array(value, float) for name, value in parameters.items()}
        self.stores = [keys.KeyStore(config, one) for one in layer_keys]
        self.optimizer = AdamW(config, self.values)
        self.done = 0
        self.margin = float("inf")  # the least of all choices so far (layer.margin)

    def forward(self, tokens, **routing):
        p = {name: tape.Variable(value) for name, value in self.values.items()}
        logits, results = transformer.forward(self.config, {**self.experts, **p}, self.stores, tokens, **routing)
        return p, logits, results

    def gradients(self, tokens, **routing):
        """Returns loss, gradients by name and the layers' results of one batch."""
        targets = targets_of(self.config, tokens)
        part = None if self.config["count_pads"] else targets.ravel() >= 0
        p, logits, results = self.forward(tokens, taking_part=part, drop=dropout(self.config, self.done, tokens),
                                          **routing)
        loss = mean_loss(logits, targets)
        total = loss
        for result in results:
            total = total + result.auxiliary
        tape.backward(total, 1.0)
        return float(loss.value), {name: v.grad for name, v in p.items()}, results, part

    def step(self, tokens):
        """Runs one step on tokens [B, S]: returns loss, gradient norm and gradients (before clipping)."""
        config, step = self.config, self.done
        k = 1 if step < config.get("topk_warmup", 0.0) * self.steps else config["top_k"]
        loss, gradients, results, part = self.gradients(tokens, top_k=k)
        self.margin = min([self.margin] + [result.margin for result in results])
        norm = math.sqrt(sum((g**2).sum() for g in gradients.values()))
        self.optimizer.update(self.values, gradients, norm, learning_rate(config, step, self.steps))
        if step % config.get("update_every", 1) == 0:
            progress = step / (self.steps - 1) if self.steps > 1 else 0.0
            numbers = None if config["count_pads"] else row_numbers(config, tokens)
            for i, result in enumerate(results):
                if i not in config.get("frozen_layers", []):
                    self.stores[i].update(result.query.value, result.indices, result.gates.value, part, numbers,
                                          progress, i, step)
        self.done += 1
        return loss, norm, gradients
