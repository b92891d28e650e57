"""An adaptive n-gram counter: what counting alone predicts of a text (spec 8, contexts).

Interpolated Kneser-Ney estimates of orders 0 to 5 with absolute discounting, learned after every token. In plain Python
with dictionaries; shares no code with the program. Run as a program it prints the losses of the streams that
tests/compress/counter_test.cc gives to the counter of the program, in nats/token.
"""
import math

LONGEST = 5


class Counter:
    def __init__(self, vocabulary, longest=LONGEST):
        self.vocabulary, self.longest = vocabulary, longest
        self.followers = [{} for _ in range(longest + 1)]  # by order: context -> {token: count}
        self.of_count = [[4.0, 1.0, 0.5, 0.35] for _ in range(longest + 1)]  # entries with a count of 1 to 4, and a prior

    def discounts(self, order):
        n1, n2, n3, n4 = self.of_count[order]
        y = n1 / (n1 + 2 * n2)
        bounded = lambda x, low, high: min(max(x, low), high)
        return (bounded(1 - 2 * y * n2 / n1, 0.05, 0.99), bounded(2 - 3 * y * n3 / n2, 0.1, 1.9),
                bounded(3 - 4 * y * n4 / n3, 0.15, 2.8))

    def probability(self, before, token):
        p = 1.0 / self.vocabulary
        for order in range(min(len(before), self.longest) + 1):
            counts = self.followers[order].get(tuple(before[len(before) - order:]))
            if counts is None:
                break
            discount = self.discounts(order)
            gone = sum(discount[min(count, 3) - 1] for count in counts.values())
            own = counts.get(token, 0)
            p = ((own - discount[min(own, 3) - 1] if own else 0) + gone * p) / sum(counts.values())
        return p

    def learn(self, before, token):
        for order in range(min(len(before), self.longest), -1, -1):
            counts = self.followers[order].setdefault(tuple(before[len(before) - order:]), {})
            count = counts[token] = counts.get(token, 0) + 1
            if count <= 4:
                self.of_count[order][count - 1] += 1
            if 2 <= count <= 5:
                self.of_count[order][count - 2] -= 1
            if count > 1:  # new tokens only are counted in the next shorter context
                break


def stream(kind, length, vocabulary):
    """Returns tokens with partial repetitions, from a linear congruential generator."""
    state, tokens = 1, []
    for i in range(length):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        draw = state >> 33
        if kind == 0 or i < 50 or draw % 8 == 0:
            tokens.append((draw // 8) % vocabulary)
        else:
            tokens.append(tokens[i - 7 - (i // 100) % 3])
    return tokens


def loss(tokens, vocabulary):
    counter, total = Counter(vocabulary), 0.0
    for i in range(1, len(tokens)):
        before = tokens[max(0, i - LONGEST):i]
        total -= math.log(counter.probability(before, tokens[i]))
        counter.learn(before, tokens[i])
    return total / (len(tokens) - 1)


# (kind of stream, vocabulary): loss; the same numbers as in tests/compress/counter_test.cc.
EXPECTED = {(0, 20): 3.090015682, (1, 20): 1.581232141, (1, 300): 2.136449751}

if __name__ == "__main__":
    for (kind, vocabulary), expected in EXPECTED.items():
        found = loss(stream(kind, 3000, vocabulary), vocabulary)
        print(f"{kind} {vocabulary} {found:.9f}")
        if abs(found - expected) > 1e-8:
            raise SystemExit(f"counter.py: expected {expected}")
