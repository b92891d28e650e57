"""The key store and its update (specification, section 4), and the measures of usage (section 6)."""

import math

import numpy as np

import streams

SMALLEST = 1e-12


def lengths(rows):
    return np.sqrt((rows**2).sum(axis=1))


class KeyStore:
    """Keys K [E, c], usage u, mass m, the number of updates s, the selection bias b, and with key_ema the moving
    average of the keys."""

    def __init__(self, config, keys, usage=None, mass=None):
        self.config = config
        self.keys = np.array(keys, float)
        self.usage = np.zeros(len(keys)) if usage is None else np.array(usage, float)
        self.mass = np.zeros(len(keys)) if mass is None else np.array(mass, float)
        self.bias = np.zeros(len(keys))
        self.average = self.keys.copy()
        self.updates = 0
        self.births = self.deaths = 0

    def routing_keys(self):
        return self.average if self.get("key_ema", 0.0) > 0 else self.keys

    def get(self, name, fallback):
        return self.config.get(name, fallback)

    def update(self, queries, indices, gates, part=None, numbers=None, progress=0.0, layer=0, step=0):
        """Applies one update to a step's queries [T, c], assignments [T, k] and gates [T, k]. part [T]: positions
        that take part (None: all); numbers [T]: the rows' numbers in the batch (None: 0, 1, 2, ...); progress in
        [0, 1] drives the annealing of beta and of the balance; layer and step name the random streams."""
        draws = streams.Stream(self.get("seed", 0), f"keys.{layer}.{step}")
        numbers = np.arange(len(queries)) if numbers is None else numbers
        rows = np.arange(len(queries))
        if part is not None:
            rows = rows[part]
        if self.get("update_fraction", 1.0) < 1.0:
            rows = rows[draws.uniform(numbers[rows]) < self.config["update_fraction"]]
        self.updates += 1  # 4.1
        if len(rows) == 0:
            return
        n, query_sums, w, together = self.sums(queries[rows], indices[rows], gates[rows])
        chosen = n.sum(axis=1)
        if self.get("usage", "ema") == "flux":
            fair = len(self.keys) / chosen.sum()
            n, query_sums, w, together = n * fair, query_sums * fair, w * fair, together * fair
        self.count(n.sum(axis=1), w)

        if self.get("use_balance", True):  # 4.10; before 9, which begins anew at 0
            fair, slack = chosen.mean(), self.get("balance_slack", 0.0)
            way = 1.0 * (chosen < fair * (1 - slack)) - 1.0 * (chosen > fair * (1 + slack))
            self.bias += self.get("balance_rate", 0.0) * self.annealed("balance_anneal", progress) * way

        before = self.keys.copy()
        if self.get("use_alpha", True):
            self.attract(n, query_sums)
        if self.get("use_beta", True):
            self.pull(together, self.beta(progress, layer))
        if self.get("clip_delta", 0.0) > 0:
            self.clip(before)
        last = self.get("constraint_order", "before_decay") == "last"
        if not last:
            self.constrain(chosen > 0)
        if self.get("use_delta", True) and self.updates > self.get("decay_warmup", 400):
            self.decay()
        if last:
            self.constrain(chosen > 0)
        if self.get("key_ema", 0.0) > 0:  # 4.8
            keep = self.config["key_ema"]
            self.average = keep * self.average + (1.0 - keep) * self.keys
        if self.get("respawn_threshold", 0.0) > 0:
            drawn = rows[np.argsort(draws.priority(numbers[rows]), kind="stable")]
            self.rebirth(queries, drawn, streams.Stream(self.get("seed", 0), f"phoenix.{layer}.{step}"))

    def sums(self, queries, indices, gates):
        """Returns the sums of a step on which an update depends: n [E, k], Q [E, k, c], w [E] and C [E, E]."""
        experts, k = len(self.keys), indices.shape[1]
        n = np.zeros((experts, k))
        query_sums = np.zeros((experts, k, self.keys.shape[1]))
        w = np.zeros(experts)
        together = np.zeros((experts, experts))
        for q, choice, gate in zip(queries, indices, gates):
            for i, e in enumerate(choice):
                n[e, i] += 1
                query_sums[e, i] += q
                w[e] += gate[i]
                for g in choice:
                    if g != e:
                        together[e, g] += 1
        return n, query_sums, w, together

    def count(self, c, w):  # 4.2
        if self.get("usage", "ema") == "cumulative":
            self.usage, self.mass = self.usage + c, self.mass + w
        else:
            keep = self.get("ema_decay", 0.99)
            self.usage = keep * self.usage + (1.0 - keep) * c
            self.mass = keep * self.mass + (1.0 - keep) * w

    def attract(self, n, query_sums):  # 4.3
        a = np.maximum(self.get("alpha", 0.01) / (1.0 + self.usage), self.get("alpha_floor", 0.0))[:, None]
        for i in range(n.shape[1]):
            self.keys = self.keys + a * (query_sums[:, i] - n[:, i, None] * self.keys)

    def beta(self, progress, layer):
        """Returns beta of this layer at this time of the run."""
        beta = self.get("beta", 0.005) * self.get("beta_scale", 1.0)
        scale = self.get("beta_layer_scale", [])
        if scale:
            beta *= scale[layer]
        return beta * self.annealed("beta_anneal", progress)

    def annealed(self, name, progress):
        """Returns the annealing factor of this setting at this time of the run."""
        anneal = self.get(name, {})
        start, end = anneal.get("start", 1.0), anneal.get("end", 1.0)
        return {"none": 1.0,
                "linear": start + (end - start) * progress,
                "cosine": end + (start - end) * (1.0 + math.cos(math.pi * progress)) / 2.0,
                "exponential": start * (end / start)**progress if start > 0 else 0.0,
                }[anneal.get("shape", "none")]

    def pull(self, together, beta):  # 4.4
        snapshot = self.keys.copy()
        inertia = np.minimum if self.get("beta_inertia", "min") == "min" else np.maximum
        m = inertia(1.0 + self.usage[:, None], 1.0 + self.usage[None, :])
        for e in range(len(self.keys)):
            weight = together[e] * beta / m[e]
            self.keys[e] = snapshot[e] + (weight[:, None] * (snapshot - snapshot[e])).sum(axis=0)

    def clip(self, before):  # 4.5
        moved = self.keys - before
        far = lengths(moved)
        limit = self.config["clip_delta"]
        factor = np.where(far > limit, limit / np.maximum(far, SMALLEST), 1.0)
        self.keys = np.where(far[:, None] > limit, before + moved * factor[:, None], self.keys)

    def constrain(self, used):  # 4.6
        kind = self.get("constraint", self.get("key_constraint", "normalize"))
        long = lengths(self.keys)
        applies = {"normalize": np.ones(len(long), bool), "normalize_used": used, "clamp": long > 1.0,
                   "free": np.zeros(len(long), bool)}[kind]
        self.keys[applies] /= np.maximum(long, SMALLEST)[applies, None]

    def decay(self):  # 4.7
        theta = self.get("theta", -1.0)
        if theta < 0:
            used = np.sort(self.usage[self.usage > 0])
            if len(used) == 0:
                return
            place = self.get("theta_percentile", 0.05) * (len(used) - 1)
            low = math.floor(place)
            theta = used[low] + (place - low) * (used[min(low + 1, len(used) - 1)] - used[low])
        self.keys[self.usage < theta] *= 1.0 - self.get("delta", 0.001)

    def rebirth(self, queries, drawn, noise):  # 4.9; drawn: the positions that took part, by rising priority
        dead = np.flatnonzero(lengths(self.keys) < self.config["respawn_threshold"])
        self.deaths += len(dead)
        if len(dead) > len(drawn):
            return
        self.births += len(dead)
        c = self.keys.shape[1]
        for e, t in zip(dead, drawn):
            key = queries[t] + 0.01 * noise.normal(e * c + np.arange(c))
            self.keys[e] = key / max(math.sqrt((key**2).sum()), SMALLEST)
            self.average[e] = self.keys[e]
            self.usage[e] = self.mass[e] = self.bias[e] = 0.0


def gini(x):
    x = np.sort(np.asarray(x, float))
    n = len(x)
    return float(((2.0 * np.arange(1, n + 1) - n - 1.0) * x).sum() / (n * x.sum())) if x.sum() > 0 else 0.0


def entropy_bits(x):
    x = np.asarray(x, float)
    p = x[x > 0] / x.sum()
    return float(-(p * np.log2(p)).sum())
