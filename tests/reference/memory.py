"""The memory (specification, section 8)."""

import numpy as np

SHARES = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8])
HOME_OF_TOKEN = 0.25  # settling: what it counts that a slot is wholly the token


class Memory:
    def __init__(self, slots, mean, match, sharpness, decay, share, values=1, inherit=False, parts=1, look=1,
                 power=1.0):
        self.mean, self.match, self.sharpness, self.decay, self.share = mean, match, sharpness, decay, share
        self.inherit, self.power = inherit, power  # of counts
        self.parts, self.look, self.size = parts, look, slots // parts
        self.centres = np.zeros((1, len(mean)))  # of the parts that have begun: sums of what they took in
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
        """Returns the probability of each target by the memory and by the mixture, and updates the mixture weights."""
        by_memory, mixed = [], []
        counts = self.counts
        for q, y, p_model in zip(self.queries(states), targets, model_probability):
            p_memory = 0.0
            alive = np.array([slot for slot in self.seen(q) if counts[slot] > 0], dtype=int)
            if len(alive):
                score = self.sharpness * (self.keys[alive] @ q) + self.power * np.log(counts[alive])
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

    def looked(self, q):
        """Returns the partitions that a query searches, nearest first."""
        length = np.maximum(np.sqrt((self.centres**2).sum(axis=1)), 1e-12)
        near = (self.centres @ q) / length
        order = np.argsort(-near, kind="stable")
        if len(order) > 1:
            self.margin = min(self.margin, np.min(np.abs(np.diff(near[order]))[:self.look]))
        return order[:self.look]

    def slots_of(self, part):
        return np.arange(part * self.size, (part + 1) * self.size)

    def seen(self, q):
        """Returns the slots that a query is compared with, in order."""
        return np.sort(np.concatenate([self.slots_of(part) for part in self.looked(q)]))

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
                self.margin = min(self.margin, abs(near - self.match))
                if near > self.match:
                    hits.setdefault(slot, []).append((q, y))
                    taken.append((slot // self.size, q))
                    continue
            misses.append((q, y))
        for slot, found in hits.items():
            count = self.counts[slot]
            self.move(slot, count, sum(q for q, _ in found), count + len(found))
            for _, y in found:
                self.tallies[self.values[:, slot] == y, slot] += 1.0
            self.usage[slot] += len(found)
        births = []  # (slot, query, token)
        for q, y in misses:
            gone = [slot for slot, _, _ in births]
            free = [slot for part in self.looked(q) for slot in self.slots_of(part) if slot not in gone]
            if free:  # the lower of those used least, but of empty ones that of the nearer part, which comes first
                least = min(free, key=lambda slot: (self.usage[slot], slot if self.usage[slot] > 0 else 0))
                births.append((least, q, y))
        if self.inherit:
            self.pass_on([slot for slot, _, _ in births])
        for slot, q, y in births:
            self.keys[slot] = q
            self.values[:, slot], self.tallies[:, slot] = -1, 0.0
            self.values[0, slot], self.tallies[0, slot], self.usage[slot] = y, 1.0, 1.0
            taken.append((slot // self.size, q))
        for part, q in taken:
            self.centres[part] += q
        for part in range(len(self.centres)):
            if len(self.centres) < self.parts:
                self.divide_if_full(part)

    def divide_if_full(self, part):
        """Splits a partition with more than three quarters non-empty slots: about half of them move to the next
        inactive one."""
        counts, own, fresh = self.counts, self.slots_of(part), self.slots_of(len(self.centres))
        slots = own[counts[own] > 0]
        if 4 * len(slots) <= 3 * self.size:
            return
        one = self.keys[slots[np.argmin(self.keys[slots] @ self.centres[part])]]
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
        held = [(array, array[..., stay].copy(), array[..., go].copy(), empty)
                for array, empty in ((self.keys.T, 0.0), (self.values, -1), (self.tallies, 0.0), (self.usage, 0.0))]
        for array, staying, going, empty in held:
            array[..., own], array[..., fresh] = empty, empty
            array[..., own[:len(stay)]], array[..., fresh[:len(go)]] = staying, going
        self.centres[part] = sums[0]
        self.centres = np.vstack([self.centres, sums[1]])

    def pass_on(self, order):
        """Merges the content of evicted slots into the nearest remaining slots."""
        counts = self.counts
        leaving = [slot for slot in order if counts[slot] > 0]
        stays = np.flatnonzero((counts > 0) & ~np.isin(np.arange(len(counts)), order))
        left = {}
        for slot in leaving:
            among = stays[np.isin(stays, self.seen(self.keys[slot]))]
            if len(self.values) == 1:
                among = among[self.values[0, among] == self.values[0, slot]]
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

    def settle(self, windows):
        """Runs one refinement pass: assigns every position to its best slot, and rebuilds slots from their
        positions."""
        old, counts = (self.keys.copy(), self.values.copy(), self.tallies.copy()), self.counts
        homes = []
        for states, targets in windows:
            for q, y in zip(self.queries(states), targets):
                part = (old[2] * (old[1] == y)).sum(axis=0) / np.maximum(counts, 1.0)
                among = np.array([slot for slot in self.seen(q) if counts[slot] > 0], dtype=int)
                if len(old[1]) == 1:  # it could not keep another token
                    among = among[part[among] > 0]
                if not len(among):
                    continue
                suits = old[0][among] @ q + HOME_OF_TOKEN * part[among]
                best = np.sort(suits)[::-1]
                self.margin = min([self.margin] + [best[0] - x for x in best[1:2]])
                homes.append((among[np.argmax(suits)], q, y))
        self.keys[:], self.values[:], self.tallies[:], self.centres[:] = 0.0, -1, 0.0, 0.0
        for slot, q, y in homes:
            self.keys[slot] += q
            self.centres[slot // self.size] += q
            self.take(slot, y, 1.0)
        self.keys /= np.maximum(np.sqrt((self.keys**2).sum(axis=1, keepdims=True)), 1e-12)
        self.usage = self.counts
