"""The memory (specification, section 8)."""

import numpy as np

SHARES = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8])
TOKEN_AFFINITY = 0.25  # refinement: bonus of a slot that holds only the token


class Memory:
    def __init__(self, slots, mean, threshold, beta, decay, switch_rate, values=1, merge_evicted=False, partitions=1,
                 nprobe=1, power=1.0):
        self.mean, self.threshold, self.beta, self.decay, self.switch_rate = mean, threshold, beta, decay, switch_rate
        self.merge_evicted, self.power = merge_evicted, power  # of counts
        self.partitions, self.nprobe, self.size = partitions, nprobe, slots // partitions
        self.centroids = np.zeros((1, len(mean)))  # of the active partitions: sums of their queries
        self.keys = np.zeros((slots, len(mean)))
        self.values = np.full((values, slots), -1)  # -1: a free entry
        self.entry_counts = np.zeros((values, slots))
        self.usage = np.zeros(slots)
        self.weights = np.full(len(SHARES), 1.0 / len(SHARES))  # omega
        self.margin = np.inf  # how close the closest decision of `learn` was: what rounding must not reach

    @property
    def counts(self):
        return self.entry_counts.sum(axis=0)

    def queries(self, states):
        away = states - self.mean
        return away / np.maximum(np.sqrt((away**2).sum(axis=1, keepdims=True)), 1e-12)

    def read(self, states, targets, model_probability):
        """Returns the probability of each target by the memory and by the mixture, and updates the mixture weights."""
        by_memory, mixed = [], []
        counts = self.counts
        for q, y, p_model in zip(self.queries(states), targets, model_probability):
            p_memory = 0.0
            alive = np.array([slot for slot in self.seen(q) if counts[slot] > 0], dtype=int)
            if len(alive):
                score = self.beta * (self.keys[alive] @ q) + self.power * np.log(counts[alive])
                weight = np.exp(score - score.max())
                part = (self.entry_counts * (self.values == y)).sum(axis=0)[alive] / counts[alive]
                p_memory = (weight * part).sum() / weight.sum()
            p = (1.0 - SHARES) * p_model + SHARES * p_memory
            answer = (self.weights * p).sum()
            self.weights = self.weights * p / answer
            self.weights = (1.0 - self.switch_rate) * self.weights + self.switch_rate / len(SHARES)
            by_memory.append(p_memory)
            mixed.append(answer)
        return np.array(by_memory), np.array(mixed)

    def searched(self, q):
        """Returns the partitions that a query searches, nearest first."""
        length = np.maximum(np.sqrt((self.centroids**2).sum(axis=1)), 1e-12)
        near = (self.centroids @ q) / length
        order = np.argsort(-near, kind="stable")
        if len(order) > 1:
            self.margin = min(self.margin, np.min(np.abs(np.diff(near[order]))[:self.nprobe]))
        return order[:self.nprobe]

    def slots_of(self, part):
        return np.arange(part * self.size, (part + 1) * self.size)

    def seen(self, q):
        """Returns the slots that a query is compared with, in order."""
        return np.sort(np.concatenate([self.slots_of(part) for part in self.searched(q)]))

    def nearest(self, q, among):
        """Returns the slot with the nearest key (ties: the lower one) and its product."""
        near = self.keys[among] @ q
        best = np.sort(near)[::-1]
        self.margin = min([self.margin] + [best[0] - x for x in best[1:2]])
        return among[np.argmax(near)], near.max()

    def move(self, slot, inertia, towards, total):
        moved = (inertia * self.keys[slot] + towards) / total
        self.keys[slot] = moved / max(np.sqrt((moved**2).sum()), 1e-12)

    def learn(self, states, targets):
        """Processes one window: matches move their slots, other positions are inserted into the least used slots,
        whose content is merged."""
        self.usage = (1.0 - self.decay) * self.usage
        hits, misses, taken = {}, [], []
        for q, y in zip(self.queries(states), targets):
            known = np.array([slot for slot in self.seen(q) if (self.values[:, slot] == y).any()], dtype=int)
            if len(known):
                slot, near = self.nearest(q, known)
                self.margin = min(self.margin, abs(near - self.threshold))
                if near > self.threshold:
                    hits.setdefault(slot, []).append((q, y))
                    taken.append((slot // self.size, q))
                    continue
            misses.append((q, y))
        for slot, found in hits.items():
            count = self.counts[slot]
            self.move(slot, count, sum(q for q, _ in found), count + len(found))
            for _, y in found:
                self.entry_counts[self.values[:, slot] == y, slot] += 1.0
            self.usage[slot] += len(found)
        inserted = []  # (slot, query, token)
        for q, y in misses:
            gone = [slot for slot, _, _ in inserted]
            free = [slot for part in self.searched(q) for slot in self.slots_of(part) if slot not in gone]
            if free:  # the lower of those used least, but of empty ones that of the nearer part, which comes first
                least = min(free, key=lambda slot: (self.usage[slot], slot if self.usage[slot] > 0 else 0))
                inserted.append((least, q, y))
        if self.merge_evicted:
            self.merge([slot for slot, _, _ in inserted])
        for slot, q, y in inserted:
            self.keys[slot] = q
            self.values[:, slot], self.entry_counts[:, slot] = -1, 0.0
            self.values[0, slot], self.entry_counts[0, slot], self.usage[slot] = y, 1.0, 1.0
            taken.append((slot // self.size, q))
        for part, q in taken:
            self.centroids[part] += q
        for part in range(len(self.centroids)):
            if len(self.centroids) < self.partitions:
                self.divide_if_full(part)

    def divide_if_full(self, part):
        """Splits a partition with more than three quarters non-empty slots: about half of them move to the next
        inactive one."""
        counts, own, fresh = self.counts, self.slots_of(part), self.slots_of(len(self.centroids))
        slots = own[counts[own] > 0]
        if 4 * len(slots) <= 3 * self.size:
            return
        one = self.keys[slots[np.argmin(self.keys[slots] @ self.centroids[part])]]
        axis = one - self.keys[slots[np.argmin(self.keys[slots] @ one)]]
        going = len(slots) // 2
        for _ in range(7):
            kept = len(slots) - going
            along = self.keys[slots] @ axis
            order = np.argsort(along, kind="stable")
            stay, go = np.sort(slots[order[:kept]]), np.sort(slots[order[kept:]])
            if not len(stay) or not len(go):
                break
            # Each slot goes to the nearer mean, but at least a quarter to either side.
            self.margin = min(self.margin, along[order[kept]] - along[order[kept - 1]])
            here, there = self.keys[stay].mean(axis=0), self.keys[go].mean(axis=0)
            axis = there - here
            beyond = self.keys[slots] @ axis - axis @ (here + there) / 2
            self.margin = min(self.margin, np.abs(beyond).min())
            going = min(max((beyond > 0).sum(), len(slots) // 4), len(slots) - len(slots) // 4)
        sums = [(counts[some][:, None] * self.keys[some]).sum(axis=0) for some in (stay, go)]
        moved = [(array, array[..., stay].copy(), array[..., go].copy(), empty)
                for array, empty in ((self.keys.T, 0.0), (self.values, -1), (self.entry_counts, 0.0), (self.usage, 0.0))]
        for array, staying, going, empty in moved:
            array[..., own], array[..., fresh] = empty, empty
            array[..., own[:len(stay)]], array[..., fresh[:len(go)]] = staying, going
        self.centroids[part] = sums[0]
        self.centroids = np.vstack([self.centroids, sums[1]])

    def merge(self, order):
        """Merges the content of evicted slots into the nearest remaining slots."""
        counts = self.counts
        evicted = [slot for slot in order if counts[slot] > 0]
        stays = np.flatnonzero((counts > 0) & ~np.isin(np.arange(len(counts)), order))
        left = {}
        for slot in evicted:
            among = stays[np.isin(stays, self.seen(self.keys[slot]))]
            if len(self.values) == 1:
                among = among[self.values[0, among] == self.values[0, slot]]
            if len(among):
                left.setdefault(self.nearest(self.keys[slot], among)[0], []).append(slot)
        for target, slots in left.items():
            total = counts[target] + sum(counts[slot] for slot in slots)
            self.move(target, counts[target], sum(counts[slot] * self.keys[slot] for slot in slots), total)
            self.usage[target] += sum(self.usage[slot] for slot in slots)
            for slot in slots:
                for y, count in zip(self.values[:, slot], self.entry_counts[:, slot]):
                    if y >= 0:
                        self.take(target, y, count)

    def take(self, target, y, count):
        values, counts_here = self.values[:, target], self.entry_counts[:, target]
        same, free = np.flatnonzero(values == y), np.flatnonzero(values < 0)
        least = np.argmin(counts_here)  # the first among equals
        if len(same):
            counts_here[same[0]] += count
        elif len(free):
            values[free[0]], counts_here[free[0]] = y, count
        elif counts_here[least] <= count:
            values[least], counts_here[least] = y, count

    def refine(self, windows):
        """Runs one refinement pass: assigns every position to its best slot, and rebuilds slots from their
        positions."""
        old, counts = (self.keys.copy(), self.values.copy(), self.entry_counts.copy()), self.counts
        assigned = []
        for states, targets in windows:
            for q, y in zip(self.queries(states), targets):
                part = (old[2] * (old[1] == y)).sum(axis=0) / np.maximum(counts, 1.0)
                among = np.array([slot for slot in self.seen(q) if counts[slot] > 0], dtype=int)
                if len(old[1]) == 1:  # it could not keep another token
                    among = among[part[among] > 0]
                if not len(among):
                    continue
                scores = old[0][among] @ q + TOKEN_AFFINITY * part[among]
                best = np.sort(scores)[::-1]
                self.margin = min([self.margin] + [best[0] - x for x in best[1:2]])
                assigned.append((among[np.argmax(scores)], q, y))
        self.keys[:], self.values[:], self.entry_counts[:], self.centroids[:] = 0.0, -1, 0.0, 0.0
        for slot, q, y in assigned:
            self.keys[slot] += q
            self.centroids[slot // self.size] += q
            self.take(slot, y, 1.0)
        self.keys /= np.maximum(np.sqrt((self.keys**2).sum(axis=1, keepdims=True)), 1e-12)
        self.usage = self.counts
