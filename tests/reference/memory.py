"""The memory: experts born in use (specification, section 8)."""

import numpy as np

SHARES = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8])


class Memory:
    def __init__(self, slots, mean, match, sharpness, decay, share):
        self.mean, self.match, self.sharpness, self.decay, self.share = mean, match, sharpness, decay, share
        self.keys = np.zeros((slots, len(mean)))
        self.values = np.full(slots, -1)  # an empty slot stands for no token
        self.counts = np.zeros(slots)
        self.usage = np.zeros(slots)
        self.weights = np.full(len(SHARES), 1.0 / len(SHARES))  # omega
        self.margin = np.inf  # how close the closest decision of `learn` was: what rounding must not reach

    def queries(self, states):
        away = states - self.mean
        return away / np.maximum(np.sqrt((away**2).sum(axis=1, keepdims=True)), 1e-12)

    def read(self, states, targets, model_probability):
        """The memory's and the mixture's probability of each target; the weights of the shares learn in passing."""
        by_memory, mixed = [], []
        alive = np.flatnonzero(self.counts > 0)
        for q, y, p_model in zip(self.queries(states), targets, model_probability):
            p_memory = 0.0
            if len(alive):
                score = self.sharpness * (self.keys[alive] @ q) + np.log(self.counts[alive])
                weight = np.exp(score - score.max())
                p_memory = weight[self.values[alive] == y].sum() / weight.sum()
            p = (1.0 - SHARES) * p_model + SHARES * p_memory
            answer = (self.weights * p).sum()
            self.weights = self.weights * p / answer
            self.weights = (1.0 - self.share) * self.weights + self.share / len(SHARES)
            by_memory.append(p_memory)
            mixed.append(answer)
        return np.array(by_memory), np.array(mixed)

    def learn(self, states, targets):
        """One window: hits move their slots, misses are born in the slots least used."""
        self.usage = (1.0 - self.decay) * self.usage
        hits, misses = {}, []
        for q, y in zip(self.queries(states), targets):
            known = np.flatnonzero((self.counts > 0) & (self.values == y))
            if len(known):
                near = self.keys[known] @ q
                best = np.sort(near)[::-1]
                self.margin = min([self.margin, abs(best[0] - self.match)] + [best[0] - x for x in best[1:2]])
                if near.max() > self.match:
                    hits.setdefault(known[np.argmax(near)], []).append(q)  # argmax: the lower slot among equals
                    continue
            misses.append((q, y))
        for slot, found in hits.items():
            moved = (self.counts[slot] * self.keys[slot] + sum(found)) / (self.counts[slot] + len(found))
            self.keys[slot] = moved / max(np.sqrt((moved**2).sum()), 1e-12)
            self.counts[slot] += len(found)
            self.usage[slot] += len(found)
        order = np.argsort(self.usage, kind="stable")
        for slot, (q, y) in zip(order, misses):
            self.keys[slot], self.values[slot] = q, y
            self.counts[slot] = self.usage[slot] = 1.0
