"""SoME: a transformer whose feed-forward blocks are libraries of frozen experts with keys that organize themselves.

The model in plain PyTorch, with every recipe setting that affects its computation. Works without transformers:

    model = modeling_some.load(FOLDER)
    logits = model(torch.tensor([[1, 2, 3]]))           # [batch, positions, vocabulary]
    ids = model.write([1, 2, 3], 100, temperature=0.7)  # the same text as `some generate` writes

With transformers, SomeForCausalLM (at the end) is what AutoModelForCausalLM loads. Keys are buffers: they are used as they
are, and the rules by which they learn without gradients are the program's own. `some import FOLDER` brings a model back.
"""

import json
import math
import os
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

try:
    from .configuration_some import SomeConfig
    from .library_some import (MASK64, draw_matrices, hadamard_hash, hadamard_signs, hash_matrices, random_experts,
                               stream_key, uniform)
    from .tensors_some import read_safetensors, write_safetensors
except ImportError:  # a folder that is no package: its files lie on the path
    import importlib

    SomeConfig = importlib.import_module("configuration_some").SomeConfig
    library = importlib.import_module("library_some")
    MASK64, draw_matrices, hash_matrices = library.MASK64, library.draw_matrices, library.hash_matrices
    hadamard_hash, hadamard_signs = library.hadamard_hash, library.hadamard_signs
    random_experts, stream_key, uniform = library.random_experts, library.stream_key, library.uniform
    tensors = importlib.import_module("tensors_some")
    read_safetensors, write_safetensors = tensors.read_safetensors, tensors.write_safetensors


def normalize(v):
    """Returns v / max(|v|, 1e-12)."""
    return v / v.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def rates(size, device):
    """Returns 10000^(-2i/size), in double precision."""
    return 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64, device=device) / size)


def position_code(positions, d):
    """Maps positions [B, S] to [B, S, d]: sines at even indices, cosines at odd ones."""
    angle = positions[..., None].double() * rates(d, positions.device)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def rotate(x, positions):
    """Applies rotary positions to x [B, H, S, size]: rotates each pair (2i, 2i+1) by its angle."""
    angle = positions[:, None, :, None].double() * rates(x.shape[-1], x.device)
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cosine - b * sine, a * sine + b * cosine], dim=-1).flatten(-2)


@dataclass
class Cache:
    """The tokens read so far: non-padding positions, and for each layer the keys and values of attention, and the
    last states."""

    real: torch.Tensor = None  # bool [B, L]
    keys: dict = field(default_factory=dict)  # layer -> [B, H, L, size]
    values: dict = field(default_factory=dict)
    states: dict = field(default_factory=dict)  # layer -> [B, past, d]; 0 where there was no token

    def get_seq_length(self, layer=0):
        return 0 if self.real is None else self.real.shape[1]

    def reorder(self, rows):
        """Reorders the rows of the cache, for beam search."""
        take = lambda by_layer: {layer: tensor[rows] for layer, tensor in by_layer.items()}
        return Cache(self.real[rows], take(self.keys), take(self.values), take(self.states))


class Weight(nn.Module):
    """A matrix parameter that is not used as a linear layer."""

    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config.setting("model.d_model")
        self.heads = config.setting("model.heads")
        self.rope = config.setting("model.position") == "rope"
        self.causal = config.setting("model.causal")
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x, layer, positions, real, cache):
        batch, length, d = x.shape
        size = d // self.heads
        q, k, v = (part.view(batch, length, self.heads, size).transpose(1, 2) for part in self.qkv(x).split(d, dim=-1))
        if self.rope:
            q, k = rotate(q, positions), rotate(k, positions)
        if cache is not None:
            if layer in cache.keys:
                k, v = torch.cat([cache.keys[layer], k], dim=2), torch.cat([cache.values[layer], v], dim=2)
            cache.keys[layer], cache.values[layer] = k, v
        whole = k.shape[2]
        seen = torch.arange(whole, device=x.device)
        own = torch.arange(whole - length, whole, device=x.device)[:, None]
        allowed = real[:, None, :].expand(batch, length, whole)
        if self.causal:
            allowed = allowed & (seen <= own)
        allowed = allowed | (seen == own)  # padding, too, has something to attend to: itself
        scores = q @ k.transpose(-1, -2) / math.sqrt(size)
        scores = scores.masked_fill(~allowed[:, None], float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, d))


def hadamard_transform(x):
    """Returns the unnormalized Hadamard transform over the last axis, a power of two, in Sylvester's order."""
    shape, stride = x.shape, 1
    while stride < shape[-1]:
        pairs = x.reshape(*shape[:-1], -1, 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack([a + b, a - b], dim=-2).reshape(shape)
        stride *= 2
    return x


class HadamardExperts:
    """Experts whose matrices are Hadamard transforms with random signs (init = "hadamard"), without stored weights."""

    def __init__(self, setting, layer, answers, wanted):
        self.seed, self.layer, self.transforms = setting("some.library_seed"), layer, setting("some.hadamard_transforms")
        self.d, self.f, self.experts = setting("model.d_model"), setting("some.d_ffn"), setting("some.experts")
        self.size = 1 << (self.d - 1).bit_length()
        found = hadamard_hash(self.seed, layer, self.experts, self.d, self.f, self.transforms, answers)
        if f"{found:016x}" != wanted:
            raise ValueError(f"layer {layer}: the hash of the experts' specification is {found:016x}, the model was "
                             f"trained with {wanted}: some.library_seed, some.hadamard_transforms or a size was changed")

    def signs(self, name, expert, like):
        """Returns the signs, [blocks, transforms, size]; drawn for each use, so that memory does not grow with the
        number of experts."""
        drawn = hadamard_signs(self.seed, self.layer, name, expert, self.d, self.f, self.transforms)
        return torch.from_numpy(drawn).to(device=like.device, dtype=like.dtype)

    def scale(self, inputs):
        return self.size ** (-0.5 * (self.transforms - 1)) / math.sqrt(3.0 * inputs)

    def apply(self, name, expert, x):
        """Returns w1[expert] x for rows x [N, d], or w2[expert] x for rows x [N, f]."""
        signs = self.signs(name, expert, x)
        if name == "w1":
            x = F.pad(x, (0, self.size - self.d))[:, None].expand(-1, len(signs), -1)
            for m in range(self.transforms):
                x = hadamard_transform(x * signs[:, m])
            return self.scale(self.d) * x.flatten(1)[:, :self.f]
        x = F.pad(x, (0, len(signs) * self.size - self.f)).reshape(len(x), len(signs), self.size)
        for m in reversed(range(self.transforms)):
            x = hadamard_transform(x) * signs[:, m]
        return self.scale(self.f) * x.sum(dim=1)[:, :self.d]


class Experts(nn.Module):
    """The matrices of all experts of a layer: frozen (buffers), with LoRA, or trained (parameters). A library that
    is not stored with the weights is generated from its seed on first use; Hadamard experts never have matrices."""

    def __init__(self, config, layer):
        super().__init__()
        setting = config.setting
        d, f, count = setting("model.d_model"), setting("some.d_ffn"), setting("some.experts")
        answers = setting("some.output_proj") in ("none", "linear")
        self.shapes = {"w1": (count, f, d)} if setting("some.use_library") else {}
        if answers:
            self.shapes["w2"] = (count, d, f)
        self.drawn_from, self.hadamard = None, None
        if self.shapes and setting("some.init") == "hadamard" and setting("some.training") != "full":
            self.hadamard = HadamardExperts(setting, layer, answers, config.library["hashes"][layer])
        for name, shape in self.shapes.items():
            if self.hadamard is not None:
                pass
            elif setting("some.training") == "full":
                self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
            elif config.library["stored"]:
                self.register_buffer(name, torch.zeros(shape))
            else:
                self.register_buffer(name, None, persistent=False)
                hashes = config.library["hashes"]
                self.drawn_from = (setting("some.library_seed"), setting("some.init"), layer, hashes[layer])
            if setting("some.training") == "lora":
                rank, (outputs, inputs) = setting("some.lora_rank"), shape[1:]
                self.register_parameter(name + "_lora_a", nn.Parameter(torch.zeros(count, rank, inputs)))
                self.register_parameter(name + "_lora_b", nn.Parameter(torch.zeros(count, outputs, rank)))

    def draw(self, like):
        """Returns the library on the device and in the type of a hidden state."""
        seed, init, layer, wanted = self.drawn_from
        total = 0
        for name, shape in self.shapes.items():
            matrices = draw_matrices(seed, init, layer, name, *shape)
            total += hash_matrices(name, matrices)
            setattr(self, name, torch.from_numpy(matrices).to(device=like.device, dtype=like.dtype))
        found = f"{total & MASK64:016x}"
        if found != wanted:
            for name in self.shapes:
                setattr(self, name, None)
            raise ValueError(f"layer {layer}: the library drawn from seed {seed} has the hash {found}, the model was "
                             f"trained with {wanted}: some.init, some.library_seed or a size was changed")

    def ready(self, like):
        if self.drawn_from is not None and any(getattr(self, name) is None for name in self.shapes):
            self.draw(like)

    def apply_matrix(self, name, expert, x):
        y = self.hadamard.apply(name, expert, x) if self.hadamard else F.linear(x, getattr(self, name)[expert])
        if hasattr(self, name + "_lora_a"):
            low = F.linear(x, getattr(self, name + "_lora_a")[expert])
            y = y + F.linear(low, getattr(self, name + "_lora_b")[expert])
        return y


def chosen_rows(indices):
    """Yields every selected expert: its number, the rows routed to it, and their top-k rank."""
    for expert in torch.unique(indices).tolist():
        rows, slots = (indices == expert).nonzero(as_tuple=True)
        yield expert, rows, slots


class Block(nn.Module):
    """One layer: attention, and a feed-forward block with frozen experts, a dense one, or none."""

    def __init__(self, config, layer):
        super().__init__()
        self.setting = setting = config.setting
        self.layer = layer
        d = setting("model.d_model")
        self.ffn_kind, self.pre = setting("model.ffn"), setting("model.norm") == "pre"
        self.look, self.token_shift = setting("model.conv"), 0
        self.attn = Attention(config)
        self.norm1 = nn.LayerNorm(d, eps=1e-5)
        if not (self.pre and self.ffn_kind == "none"):
            self.norm2 = nn.LayerNorm(d, eps=1e-5)
        if self.ffn_kind == "none":
            self.look = 0
        if self.ffn_kind == "dense":
            hidden = round_half_away(setting("model.dense_mult") * d)
            self.ffn = nn.ModuleList([nn.Linear(d, hidden), nn.Linear(hidden, d)])
        if self.look > 0:
            self.conv = Weight(self.look, d)
        if self.ffn_kind == "some":
            self.make_some(config, d)
        self.past = max(self.look, self.token_shift)

    def make_some(self, config, d):
        setting = self.setting
        f, count = setting("some.d_ffn"), setting("some.experts")
        query = setting("some.query_dim") or d
        self.output_proj_kind = setting("some.output_proj")
        if setting("some.router") == "mlp":
            hidden = round_half_away(setting("some.router_mult") * d)
            self.router = nn.ModuleList([nn.Linear(d, hidden), nn.Linear(hidden, query)])
        else:
            self.router = nn.ModuleList([nn.Linear(d, query)])
        if setting("some.input_proj"):
            self.input_proj = nn.Linear(d, d, bias=False)
        if self.output_proj_kind != "none":
            self.output_proj = nn.Linear(d if self.output_proj_kind == "linear" else f, d, bias=False)
        if self.output_proj_kind == "modulated":
            self.token_shift = setting("some.token_shift")
            self.hidden = nn.Linear(d, f)
            self.gains = nn.Parameter(torch.zeros(count, f))
        if setting("some.temperature") == "learned":
            self.log_temperature = nn.Parameter(torch.zeros(1))
        self.experts = Experts(config, self.layer)
        # The key store: keys used for routing, and state that the program needs to continue
        # learning.
        self.register_buffer("keys", torch.zeros(count, query))
        self.register_buffer("usage", torch.zeros(count))
        self.register_buffer("mass", torch.zeros(count))
        if setting("some.key_ema") > 0:
            self.register_buffer("keys_average", torch.zeros(count, query))
        if setting("some.balance_rate") > 0:
            self.register_buffer("choice_bias", torch.zeros(count))
        self.register_buffer("key_counts", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("epoch_counts", torch.zeros(count, dtype=torch.int64))

    def forward(self, x, tokens, positions, real, below, cache):
        """x: [B, S, d]; below: the queries of the layer below. Returns the new states and this layer's queries."""
        new = real[:, -x.shape[1]:]
        if self.pre:
            x = x + self.attn(self.norm1(x), self.layer, positions, real, cache)
            if self.ffn_kind == "none":
                return x, None
            y, query = self.feed_forward(self.norm2(x), tokens, new, below, cache)
            return x + y, query
        x = self.norm1(x + self.attn(x, self.layer, positions, real, cache))
        if self.ffn_kind == "none":
            return self.norm2(x), None
        y, query = self.feed_forward(x, tokens, new, below, cache)
        return self.norm2(x + y), query

    def states_before(self, x, new, cache):
        """Returns the past states followed by these, and before(j), the index of the row j tokens earlier."""
        if self.past == 0:
            return None
        if cache is not None and self.layer in cache.states:
            old = cache.states[self.layer]
        else:
            old = x.new_zeros(x.shape[0], self.past, x.shape[2])
        states = torch.cat([old, x * new[..., None]], dim=1)
        if cache is not None:
            cache.states[self.layer] = states[:, -self.past:]
        length, past = x.shape[1], self.past
        return lambda j: states[:, past - j:past - j + length]

    def feed_forward(self, x, tokens, new, below, cache):
        before = self.states_before(x, new, cache)
        mixed = x
        for j in range(1, self.look + 1):
            mixed = mixed + self.conv.weight[j - 1] * before(j)
        if self.ffn_kind == "dense":
            return self.ffn[1](F.gelu(self.ffn[0](mixed))), None
        query = self.queries(x, below)
        indices, gates = self.choose(query, tokens)
        rows = lambda states: states.reshape(-1, states.shape[-1])
        if self.output_proj_kind == "modulated":
            y = self.modulated(rows(x), rows(mixed), before, indices, gates)
        else:
            seen = self.input_proj(mixed) if hasattr(self, "input_proj") else x
            y = self.mixture(rows(seen), indices, gates)
            if self.output_proj_kind != "none":
                y = self.output_proj(y)
        return y.view(x.shape), query

    def queries(self, x, below):
        raw = self.router[0](x)
        if len(self.router) == 2:
            raw = self.router[1](F.gelu(raw))
        query = normalize(raw if raw.dtype == torch.float64 else raw.float())
        ground = self.setting("some.ground")
        if ground > 0 and below is not None:
            query = normalize(query + ground * below)
        return query

    def choose(self, query, tokens):
        """Returns the experts of each token, best first, and their gates: both [tokens, top_k]."""
        flat = query.reshape(-1, query.shape[-1])
        keys = self.keys_average if hasattr(self, "keys_average") else self.keys
        scores = flat @ keys.to(flat.dtype).T
        count, k = self.setting("some.experts"), self.setting("some.top_k")
        if self.setting("some.routing") == "hash":
            seed, ids = self.setting("some.library_seed"), tokens.reshape(-1).tolist()
            table = {i: random_experts(seed, self.layer, i, count, k) for i in set(ids)}
            indices = torch.tensor([table[i] for i in ids], device=query.device)
        else:
            ranked = scores.detach()
            if hasattr(self, "choice_bias"):
                ranked = ranked + self.choice_bias.to(ranked.dtype)
            ranked = self.in_partitions(flat.detach(), keys.to(flat.dtype), ranked)
            ranked = torch.where(torch.isnan(ranked), torch.full_like(ranked, float("-inf")), ranked)
            # Ties go to the lower expert: a stable sort keeps their order.
            indices = torch.sort(ranked, dim=-1, descending=True, stable=True).indices[:, :k]
        if hasattr(self, "log_temperature"):
            temperature = self.log_temperature.to(scores.dtype).exp()
        else:
            temperature = self.setting("some.train_temp" if self.training else "some.eval_temp")
        return indices, torch.softmax(scores.gather(1, indices) / temperature, dim=-1)

    def in_partitions(self, queries, keys, ranked):
        """Ranks only the keys of the partitions with the highest mean rank, if a query does not search all."""
        count, probe = self.setting("some.key_partitions", 0), self.setting("some.key_probe", 8)
        if count <= 1 or probe >= count:
            return ranked
        experts = len(keys)
        bounds = [p * experts // count for p in range(count + 1)]
        parts = list(zip(bounds[:-1], bounds[1:]))
        scores = queries @ torch.stack([keys[a:b].mean(dim=0) for a, b in parts]).T
        if hasattr(self, "choice_bias"):
            scores = scores + torch.stack([self.choice_bias[a:b].mean() for a, b in parts]).to(scores.dtype)
        searched = torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, :probe]
        places = torch.arange(count, device=keys.device)
        near = (searched[:, :, None] == places[None, None, :]).any(dim=1)  # [tokens, partitions]
        far = torch.cat([~near[:, p:p + 1].expand(len(ranked), b - a) for p, (a, b) in enumerate(parts)], dim=1)
        return torch.where(far, torch.full_like(ranked, float("-inf")), ranked)

    def mixture(self, seen, indices, gates):
        self.experts.ready(seen)
        answers = "w2" in self.experts.shapes
        y = seen.new_zeros(seen.shape[0], seen.shape[1] if answers else self.setting("some.d_ffn"))
        for expert, rows, slots in chosen_rows(indices):
            hidden = F.gelu(self.experts.apply_matrix("w1", expert, seen[rows]))
            if answers:
                hidden = self.experts.apply_matrix("w2", expert, hidden)
            y = y.index_add(0, rows, gates[rows, slots, None].to(hidden.dtype) * hidden)
        return y

    def modulated(self, x, mixed, before, indices, gates):
        """Experts that modulate a trained hidden layer; expert e reads the state 1 + e mod token_shift tokens
        earlier."""
        self.experts.ready(x)
        seen = self.input_proj(x) if hasattr(self, "input_proj") else x
        z = self.hidden(mixed)
        v = torch.zeros_like(z)
        earlier = [before(j).reshape(x.shape) for j in range(1, self.token_shift + 1)]
        for expert, rows, slots in chosen_rows(indices):
            gains = self.gains[expert] * gates[rows, slots, None].to(z.dtype)
            if "w1" in self.experts.shapes:
                states = earlier[expert % self.token_shift] if self.token_shift > 0 else seen
                gains = gains * self.experts.apply_matrix("w1", expert, states[rows])
            v = v.index_add(0, rows, gains)
        v = v * self.setting("some.modulation_scale")
        inside = self.setting("some.modulation") == "additive"
        return self.output_proj(F.gelu(z + v) if inside else F.gelu(z) * (1 + v))


def round_half_away(value):
    return int(math.floor(value + 0.5))


KNOWN = {
    "model.norm": ("post", "pre"),
    "model.position": ("sinusoidal", "rope"),
    "model.ffn": ("some", "dense", "none"),
    "some.router": ("linear", "mlp"),
    "some.routing": ("keys", "hash"),
    "some.output_proj": ("none", "linear", "features", "modulated"),
    "some.modulation": ("multiplicative", "additive"),
    "some.temperature": ("fixed", "learned"),
    "some.training": ("frozen", "lora", "full"),
}


class SomeTransformer:
    """Base class of the plain model and the transformers model; its modules have the names of the program's
    checkpoints."""

    def build(self, config):
        for name, known in KNOWN.items():
            if config.setting(name) not in known:
                raise ValueError(f"config.json: {name} = {config.setting(name)!r}; this file knows {', '.join(known)}")
        d, vocab = config.setting("model.d_model"), config.vocab_size
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Block(config, i) for i in range(config.setting("model.layers"))])
        if config.setting("model.norm") == "pre":
            self.final_norm = nn.LayerNorm(d, eps=1e-5)
        self.head = nn.Linear(d, vocab)

    def run(self, tokens, cache=None, real=None):
        """Returns the logits [B, S, V] of tokens [B, S] that follow the contents of the cache, which is extended.
        real: bool [B, S], false for padding tokens (before or after a text)."""
        if real is None:
            real = torch.ones_like(tokens, dtype=torch.bool)
        if cache is not None:
            real = real if cache.real is None else torch.cat([cache.real, real], dim=1)
            cache.real = real
        positions = (real.long().cumsum(dim=1) - 1).clamp_min(0)[:, -tokens.shape[1]:]
        weight = self.embed.weight
        x = self.embed(tokens) * torch.tensor(math.sqrt(weight.shape[1]), dtype=weight.dtype, device=weight.device)
        if self.config.setting("model.position") == "sinusoidal":
            x = x + position_code(positions, weight.shape[1]).to(x.dtype)
        below = None
        for layer in self.layers:
            x, below = layer(x, tokens, positions, real, below, cache)
        if hasattr(self, "final_norm"):
            x = self.final_norm(x)
        return self.head(x)

    @torch.no_grad()
    def write(self, prompt, max_new_tokens=200, temperature=0.0, top_k=0, top_p=1.0, seed=0, number=0):
        """Returns the tokens that follow a prompt (a list of ids), up to the end of the text, as `some generate`
        does. A text longer than model.seq_len continues with a sliding context: when the context is full, its first
        half is dropped and the rest is read again. number: index of the prompt, if several are generated with one
        seed."""
        whole = self.config.setting("model.seq_len")
        step = max(1, whole // 2)
        begin_of = lambda length: 0 if length < whole else ((length - whole) // step + 1) * step
        if not self.config.setting("model.causal"):
            raise ValueError("model.causal is false: such a model cannot generate")
        if not prompt:
            raise ValueError("a prompt needs at least one token")
        was_training, device = self.training, self.head.weight.device
        self.eval()
        key = stream_key(seed, f"generate.{number}")
        text, written, cache, begin = list(prompt), [], None, -1
        try:
            while True:
                if cache is None or begin_of(len(text)) != begin:
                    begin, cache = begin_of(len(text)), Cache()
                    new = text[begin:]
                else:
                    new = text[-1:]
                logits = self.run(torch.tensor([new], device=device), cache)[0, -1].double().cpu().numpy()
                logits[self.config.pad_token_id] = -np.inf
                token = pick(logits, temperature, top_k, top_p, uniform(key, len(written)))
                if token == self.config.eos_token_id:
                    return written
                text.append(token)
                written.append(token)
                if len(written) >= max_new_tokens:
                    return written
        finally:
            self.train(was_training)


def pick(logits, temperature, top_k, top_p, uniform):
    """Samples one token; with temperature 0 the most likely token, ties to the lower id."""
    if temperature <= 0:
        return int(np.argmax(logits))
    order = np.arange(len(logits))
    if 0 < top_k < len(order) or top_p < 1:
        order = np.argsort(-logits, kind="stable")
        order = order[:top_k] if top_k > 0 else order
    weight = np.exp((logits[order] - logits[order].max()) / temperature)
    total = math.fsum(weight)
    if top_p < 1:
        held, n = 0.0, 0
        while n < len(order) and (n == 0 or held < top_p * total):
            held += weight[n]
            n += 1
        order, weight, total = order[:n], weight[:n], held
    at = uniform * total
    for token, share in zip(order, weight):
        at -= share
        if at < 0:
            return int(token)
    return int(order[-1])


class SomeModel(SomeTransformer, nn.Module):
    """The model without transformers."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.build(config)

    def forward(self, tokens, cache=None, real=None):
        return self.run(tokens, cache, real)


# Reads and writes an exported folder without other packages.


def load(folder):
    """Loads an exported folder on the CPU. Raises ValueError naming what is missing or does not fit."""
    config = SomeConfig.from_pretrained(folder)
    model = SomeModel(config)
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            files = sorted(set(json.load(file)["weight_map"].values()))
    else:
        files = ["model.safetensors"]
    tensors = {}
    for name in files:
        tensors.update(read_safetensors(os.path.join(folder, name)))
    wanted = model.state_dict()
    for name in wanted:
        if name not in tensors:
            raise ValueError(f"{folder}: there is no tensor {name}")
    for name, tensor in tensors.items():
        if name not in wanted:
            raise ValueError(f"{folder}: tensor {name} does not belong to this model")
        if tensor.shape != wanted[name].shape:
            raise ValueError(f"{folder}: {name} has shape {list(tensor.shape)}, must be {list(wanted[name].shape)}")
    if any(tensor.dtype == torch.float64 for tensor in tensors.values()):
        model.double()
    model.load_state_dict(tensors)
    return model.eval()


def save(model, folder):
    """Writes weights and config.json for `some import`; copy tokenizer.json into the same folder."""
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, "model.safetensors"), model.state_dict())
    model.config.save_pretrained(folder)


# The thin wrapper that transformers uses.

try:
    import transformers
except ImportError:
    transformers = None

if transformers is not None:
    from transformers import PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutputWithPast

    try:
        from transformers import GenerationMixin
    except ImportError:  # before 4.50 every model had it
        GenerationMixin = object

    bases = (SomeTransformer, PreTrainedModel)
    if GenerationMixin is not object and not issubclass(PreTrainedModel, GenerationMixin):
        bases += (GenerationMixin,)

    class SomeForCausalLM(*bases):
        config_class = SomeConfig
        base_model_prefix = ""
        main_input_name = "input_ids"
        _supports_cache_class = False
        _no_split_modules = ["Block"]

        def __init__(self, config):
            super().__init__(config)
            self.build(config)
            if hasattr(self, "post_init"):
                self.post_init()

        def _init_weights(self, module):
            """Does nothing: weights come from a run."""

        def get_input_embeddings(self):
            return self.embed

        def set_input_embeddings(self, embedding):
            self.embed = embedding

        def get_output_embeddings(self):
            return self.head

        def forward(self, input_ids, attention_mask=None, past_key_values=None, labels=None, use_cache=None,
                    return_dict=None, **unused):
            cache = past_key_values if isinstance(past_key_values, Cache) else None
            if cache is None and (use_cache if use_cache is not None else not self.training and labels is None):
                cache = Cache()
            real = None
            if attention_mask is not None:
                real = attention_mask[:, -input_ids.shape[1]:].bool()
            logits = self.run(input_ids, cache, real)
            loss = None
            if labels is not None:
                loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=-100)
            return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)

        def prepare_inputs_for_generation(self, input_ids, past_key_values=None, attention_mask=None, **settings):
            read = past_key_values.get_seq_length() if isinstance(past_key_values, Cache) else 0
            return {"input_ids": input_ids[:, read:], "past_key_values": past_key_values if read else None,
                    "attention_mask": attention_mask, "use_cache": settings.get("use_cache", True)}

        @staticmethod
        def _reorder_cache(past_key_values, beam_idx):
            return past_key_values.reorder(beam_idx)
