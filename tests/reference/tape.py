"""Minimal reverse-mode differentiation: the reference implements forward passes, and gradients follow from these
rules. A Variable holds a value and its inputs, each with a function that maps the gradient of the result to the
gradient of that input. `backward` traverses the graph from the result to the leaves.

A Variable holds a value and knows which variables it was made of, each with a function that turns the gradient of the
result into the gradient of that part. `backward` walks from the result to the leaves.
"""

import math

import numpy as np


class Variable:
    def __init__(self, value, parents=()):
        self.value = np.asarray(value, dtype=float)
        self.parents = parents  # (variable, function from the result's gradient to this variable's)
        self.grad = None

    @property
    def shape(self):
        return self.value.shape

    def __add__(self, other):
        other = variable(other)
        return Variable(self.value + other.value, ((self, lambda g: fit(g, self.shape)),
                                                   (other, lambda g: fit(g, other.shape))))

    def __mul__(self, other):
        other = variable(other)
        return Variable(self.value * other.value, ((self, lambda g: fit(g * other.value, self.shape)),
                                                   (other, lambda g: fit(g * self.value, other.shape))))

    def __truediv__(self, other):
        return self * power(variable(other), -1.0)

    def __sub__(self, other):
        return self + variable(other) * -1.0

    def __matmul__(self, other):
        """Multiplies matrices over the last two axes; earlier axes are broadcast as in NumPy."""
        other = variable(other)
        turn = lambda x: np.swapaxes(x, -1, -2)
        return Variable(self.value @ other.value, ((self, lambda g: fit(g @ turn(other.value), self.shape)),
                                                   (other, lambda g: fit(turn(self.value) @ g, other.shape))))

    def __getitem__(self, index):
        """Selects rows or parts, also by an array of indices; what is selected twice receives both gradients."""
        def spread(g):
            out = np.zeros(self.shape)
            np.add.at(out, index, g)
            return out
        return Variable(self.value[index], ((self, spread),))

    def reshape(self, *shape):
        return Variable(self.value.reshape(*shape), ((self, lambda g: g.reshape(self.shape)),))

    def transpose(self, *axes):
        return Variable(self.value.transpose(*axes), ((self, lambda g: g.transpose(np.argsort(axes))),))

    def sum(self, axis=None, keepdims=False):
        def spread(g):
            if axis is not None and not keepdims:
                g = np.expand_dims(g, axis)
            return np.broadcast_to(g, self.shape)
        return Variable(self.value.sum(axis=axis, keepdims=keepdims), ((self, spread),))


def variable(x):
    return x if isinstance(x, Variable) else Variable(x)


def fit(g, shape):
    """Reverses broadcasting: sums the gradient over every axis along which a value was repeated."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    return g.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1), keepdims=True)


def exp(x):
    y = np.exp(x.value)
    return Variable(y, ((x, lambda g: g * y),))


def log(x):
    return Variable(np.log(x.value), ((x, lambda g: g / x.value),))


def power(x, exponent):
    return Variable(x.value**exponent, ((x, lambda g: g * exponent * x.value**(exponent - 1.0)),))


def at_least(x, least):
    """Returns max(x, least); a raised value counts as a constant."""
    return Variable(np.maximum(x.value, least), ((x, lambda g: g * (x.value > least)),))


def gelu(x):
    """Returns the exact GELU, x Phi(x)."""
    phi = 0.5 * (1.0 + np.vectorize(math.erf, otypes=[float])(x.value / math.sqrt(2.0)))
    bell = np.exp(-0.5 * x.value**2) / math.sqrt(2.0 * math.pi)
    return Variable(x.value * phi, ((x, lambda g: g * (phi + x.value * bell)),))


def softmax(x):
    """Computes the softmax over the last axis. The maximum is subtracted first; it cancels, so it counts as a
    constant."""
    e = exp(x - x.value.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def linear(x, weight, bias=None):
    y = x @ variable(weight).transpose(1, 0)
    return y if bias is None else y + bias


def backward(result, grad):
    """Fills .grad of all inputs of `result`, given the gradient of `result`."""
    order, seen = [], set()

    def visit(node):
        if id(node) in seen:
            return
        seen.add(id(node))
        for parent, _ in node.parents:
            visit(parent)
        order.append(node)

    visit(result)
    for node in order:
        node.grad = np.zeros(node.shape)
    result.grad = np.broadcast_to(np.asarray(grad, float), result.shape).copy()
    for node in reversed(order):
        for parent, rule in node.parents:
            parent.grad = parent.grad + rule(node.grad)
