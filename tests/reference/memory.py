"""The memory: experts born in use (specification, section 8)."""

import numpy as np

SHARES = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8])


class Memory:
    def __init__(self, slots, mean, match, sharpness, decay, share, values=1, inherit=False):
        self.mean, self.match, self.sharpness, self.decay, self.share = mean, match, sharpness, decay, share
        self.inherit = inherit
        self.keys = np.zeros((slots, len(mean)))
        self.values = np.full((values, slots), -1)  # an entry that is free stands for no token
        self.tallies = np.zeros((values, slots))
        self.usage = np.zeros(slots)
        self.weights = np.full(len(SHARES), 1.0 / len(SHARES))  # omega
        self.margin = np.inf  # how close the closest decision of `learn` was: what rounding must not reach

    @property
    def counts(self):
        return self.tallies.sum(axis=0)

    def queries(self, states):
        away = states - self.mean
        return away / np.maximum(np.sqrt((away**2).sum(axis=1, keepdims=True)), 1e-12)

    def read(self, states, targets, model_probability):
        """The memory's and the mixture's probability of each target; the weights of the shares learn in passing."""
        by_memory, mixed = [], []
        counts = self.counts
        alive = np.flatnonzero(counts > 0)
        for q, y, p_model in zip(self.queries(states), targets, model_probability):
            p_memory = 0.0
            if len(alive):
                score = self.sharpness * (self.keys[alive] @ q) + np.log(counts[alive])
                weight = np.exp(score - score.max())
                part = (self.tallies * (self.values == y)).sum(axis=0)[alive] / counts[alive]
                p_memory = (weight * part).sum() / weight.sum()
            p = (1.0 - SHARES) * p_model + SHARES * p_memory
            answer = (self.weights * p).sum()
            self.weights = self.weights * p / answer
            self.weights = (1.0 - self.share) * self.weights + self.share / len(SHARES)
            by_memory.append(p_memory)
            mixed.append(answer)
        return np.array(by_memory), np.array(mixed)

    def nearest(self, q, among):
        """The slot whose key is nearest (argmax: the lower among equals) and its product."""
        near = self.keys[among] @ q
        best = np.sort(near)[::-1]
        self.margin = min([self.margin] + [best[0] - x for x in best[1:2]])
        return among[np.argmax(near)], near.max()

    def move(self, slot, inertia, towards, total):
        moved = (inertia * self.keys[slot] + towards) / total
        self.keys[slot] = moved / max(np.sqrt((moved**2).sum()), 1e-12)

    def learn(self, states, targets):
        """One window: hits move their slots, misses are born in the slots least used, which leave what they held."""
        self.usage = (1.0 - self.decay) * self.usage
        hits, misses = {}, []
        for q, y in zip(self.queries(states), targets):
            known = np.flatnonzero((self.values == y).any(axis=0))
            if len(known):
                slot, near = self.nearest(q, known)
                self.margin = min(self.margin, abs(near - self.match))
                if near > self.match:
                    hits.setdefault(slot, []).append((q, y))
                    continue
            misses.append((q, y))
        for slot, found in hits.items():
            count = self.counts[slot]
            self.move(slot, count, sum(q for q, _ in found), count + len(found))
            for _, y in found:
                self.tallies[self.values[:, slot] == y, slot] += 1.0
            self.usage[slot] += len(found)
        order = np.argsort(self.usage, kind="stable")[:len(misses)]
        if self.inherit:
            self.pass_on(order)
        for slot, (q, y) in zip(order, misses):
            self.keys[slot] = q
            self.values[:, slot], self.tallies[:, slot] = -1, 0.0
            self.values[0, slot], self.tallies[0, slot], self.usage[slot] = y, 1.0, 1.0

    def pass_on(self, order):
        """What the slots that give way hold goes to the nearest of those that stay."""
        counts = self.counts
        leaving = [slot for slot in order if counts[slot] > 0]
        stays = np.flatnonzero((counts > 0) & ~np.isin(np.arange(len(counts)), order))
        left = {}
        for slot in leaving:
            among = stays
            if len(self.values) == 1:
                among = stays[self.values[0, stays] == self.values[0, slot]]
            if len(among):
                left.setdefault(self.nearest(self.keys[slot], among)[0], []).append(slot)
        for heir, slots in left.items():
            total = counts[heir] + sum(counts[slot] for slot in slots)
            self.move(heir, counts[heir], sum(counts[slot] * self.keys[slot] for slot in slots), total)
            self.usage[heir] += sum(self.usage[slot] for slot in slots)
            for slot in slots:
                for y, tally in zip(self.values[:, slot], self.tallies[:, slot]):
                    if y >= 0:
                        self.take(heir, y, tally)

    def take(self, heir, y, tally):
        values, tallies = self.values[:, heir], self.tallies[:, heir]
        same, free = np.flatnonzero(values == y), np.flatnonzero(values < 0)
        least = np.argmin(tallies)  # the first among equals
        if len(same):
            tallies[same[0]] += tally
        elif len(free):
            values[free[0]], tallies[free[0]] = y, tally
        elif tallies[least] <= tally:
            values[least], tallies[least] = y, tally
