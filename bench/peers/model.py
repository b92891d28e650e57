"""The language models of the program in PyTorch: best effort with what PyTorch offers. Static shapes and no host
synchronization: assignments are sorted by expert on the device, and one grouped GEMM computes all experts.
"""
import inspect
import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

try:
    from torch.nn.attention.varlen import varlen_attn

    has_causal = "is_causal" in inspect.signature(varlen_attn).parameters  # versions of PyTorch differ
    CAUSAL = {"is_causal": True} if has_causal else {"window_size": (-1, 0)}
except ImportError:
    varlen_attn = None

VOCABULARY = 8192


@dataclass(frozen=True)
class Form:
    """Settings of one recipe of the program. `block`: dense, published, features, modulated or trained."""

    block: str
    d: int = 512
    layers: int = 10
    heads: int = 8
    hidden: int = 1024
    experts: int = 64
    top_k: int = 4
    query: int = 0  # width of queries and keys; 0: d
    router: float = 0  # width of the router's hidden layer over d; 0: a linear router
    conv: int = 0  # earlier tokens that a short causal convolution adds
    shift: int = 0  # token shift of the experts
    additive: bool = False  # modulation inside the GELU


FORMS = {
    "a1": Form("published", d=384, layers=8, router=2),
    "a4": Form("published", router=2),
    "b2": Form("published", router=2, experts=256),
    "dense-match": Form("dense"),
    "dense-conv": Form("dense", hidden=1016, conv=3),
    "features": Form("features", query=64, router=0.5),
    "mod-shift-gentle": Form("modulated", hidden=976, experts=16, query=64, shift=3, additive=True),
    "mod-conv": Form("modulated", hidden=968, experts=16, query=64, conv=3),
    "moe-top2": Form("trained", hidden=512, experts=8, top_k=2, query=64),
}


def form(name, **changes):
    return replace(FORMS[name], **{key: value for key, value in changes.items() if value is not None})


@dataclass
class Batch:
    """Positions of one batch, flat. `rows`, `length`: its padded shape. starts: first position of each sequence, or
    None."""

    tokens: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    past: torch.Tensor  # [T, 3]: index + 1 of the token 1, 2, 3 earlier in its sequence; 0: none
    real: torch.Tensor  # [T] float: 0 for padding
    starts: torch.Tensor | None
    rows: int
    length: int

    def table(self, x):
        """Adds a zero row 0 to the states that `past` indexes."""
        return F.pad(x, (0, 0, 1, 0))

    def tensors(self):
        found = [self.tokens, self.positions, self.targets, self.past, self.real]
        return found if self.starts is None else found + [self.starts]


def grouped(rows, matrices, ends):
    """Grouped GEMM: rows [n, in] sorted by group, times matrices [E, in, out]; ends [E]: end of each group."""
    if hasattr(torch, "_grouped_mm") and rows.is_cuda:
        return torch._grouped_mm(rows, matrices, offs=ends)
    bounds = [0] + ends.tolist()
    return torch.cat([rows[a:b] @ m for a, b, m in zip(bounds, bounds[1:], matrices)])


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5  # PyTorch 1, for --rehearse
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v


def half(x):
    return x.to(torch.bfloat16) if x.is_cuda else x


class CausalConv(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.taps = form.conv
        self.weight = nn.Parameter(torch.zeros(form.conv, form.d))

    def forward(self, x, batch):
        return x + (batch.table(x)[batch.past[:, : self.taps]] * self.weight.to(x.dtype)).sum(1)


class Dense(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.conv = CausalConv(form) if form.conv else None
        self.up, self.down = nn.Linear(form.d, form.hidden), nn.Linear(form.hidden, form.d)

    def forward(self, x, batch):
        if self.conv:
            x = self.conv(x, batch)
        return self.down(F.gelu(self.up(x))), None


class Routed(nn.Module):
    """Router, keys and assignments; the classes below compute the experts."""

    def __init__(self, form):
        super().__init__()
        self.form, width = form, form.query or form.d
        inner = int(form.router * form.d)
        self.router = (nn.Sequential(nn.Linear(form.d, inner), nn.GELU(), nn.Linear(inner, width)) if inner
                       else nn.Linear(form.d, width))
        self.learned = form.block != "published"
        if self.learned:
            self.log_temperature = nn.Parameter(torch.tensor(math.log(0.1)))
        self.register_buffer("keys", F.normalize(torch.randn(form.experts, width), dim=-1))
        self.register_buffer("usage", torch.zeros(form.experts))
        self.register_buffer("bias", torch.zeros(form.experts))
        self.register_buffer("numbers", torch.arange(form.experts))

    def route(self, x):
        query = F.normalize(self.router(x).float(), dim=-1)
        with torch.autocast(x.device.type, enabled=False):  # scores as exact as the program's
            scores = query @ self.keys.t()
        chosen = (scores.detach() + self.bias).topk(self.form.top_k, -1).indices
        found = scores.gather(1, chosen)
        gates = (found / (self.log_temperature.exp() if self.learned else 0.8)).softmax(-1)
        return query, chosen, gates, scores

    def sort(self, chosen):
        experts, order = chosen.reshape(-1).sort(stable=True)
        ends = torch.searchsorted(experts, self.numbers, right=True, out_int32=True)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        return order, ends, back

    def combine(self, rows, back, gates):
        picked = rows[back].view(*gates.shape, -1)
        return (picked * gates.unsqueeze(-1).to(rows.dtype)).sum(1)

    @torch.no_grad()
    def update(self, query, chosen, gates, real):
        """The key rules of the published form (attraction, peer pull, decay), or the load-balancing bias of other
        forms."""
        experts, k = self.form.experts, self.form.top_k
        counts = torch.zeros_like(self.usage).index_add_(0, chosen.reshape(-1), real.repeat_interleave(k))
        if self.learned:
            self.bias.add_(2e-4 * torch.sign(counts.mean() - counts))
            return
        self.usage.mul_(0.99).add_(counts, alpha=0.01)
        inertia = 1 + self.usage
        pulled, mass = torch.zeros_like(self.keys), torch.zeros_like(self.usage)
        for i in range(k):
            pulled.index_add_(0, chosen[:, i], query * real[:, None])
            mass.index_add_(0, chosen[:, i], real)
        self.keys.add_((0.01 / inertia)[:, None] * (pulled - mass[:, None] * self.keys))
        pairs = torch.zeros(experts * experts, device=query.device)
        for i in range(k):
            for j in range(i + 1, k):
                pairs.index_add_(0, chosen[:, i] * experts + chosen[:, j], real)
        pairs = pairs.view(experts, experts)
        pull = (pairs + pairs.t()) * 0.005 / torch.minimum(inertia[:, None], inertia[None])
        self.keys.add_(pull @ self.keys - pull.sum(1, keepdim=True) * self.keys)
        self.keys.copy_(F.normalize(self.keys, dim=-1))
        used = torch.where(self.usage > 0, self.usage, torch.nan)
        rare = self.usage < torch.nanquantile(used, 0.05)
        self.keys.mul_(torch.where(rare, 0.999, 1.0)[:, None])


def library(experts, rows, columns):
    return torch.empty(experts, rows, columns).uniform_(-(columns**-0.5), columns**-0.5)


class Published(Routed):
    def __init__(self, form):
        super().__init__(form)
        self.register_buffer("w1", library(form.experts, form.hidden, form.d))
        self.register_buffer("w2", library(form.experts, form.d, form.hidden))

    def forward(self, x, batch):
        query, chosen, gates, _ = self.route(x)
        order, ends, back = self.sort(chosen)
        rows = half(x)[order // self.form.top_k]
        rows = grouped(F.gelu(grouped(rows, self.w1.transpose(1, 2), ends)), self.w2.transpose(1, 2), ends)
        return self.combine(rows, back, gates), (query, chosen, gates)


class Features(Routed):
    def __init__(self, form):
        super().__init__(form)
        self.input_proj = nn.Parameter(torch.eye(form.d))
        self.output_proj = nn.Linear(form.hidden, form.d, bias=False)
        self.register_buffer("w1", library(form.experts, form.hidden, form.d))

    def forward(self, x, batch):
        query, chosen, gates, _ = self.route(x)
        order, ends, back = self.sort(chosen)
        rows = half(F.linear(x, self.input_proj.to(x.dtype)))[order // self.form.top_k]
        rows = F.gelu(grouped(rows, self.w1.transpose(1, 2), ends))
        return self.output_proj(self.combine(rows, back, gates)), (query, chosen, gates)


class Modulated(Routed):
    def __init__(self, form):
        super().__init__(form)
        self.conv = CausalConv(form) if form.conv else None
        self.up, self.output_proj = nn.Linear(form.d, form.hidden), nn.Linear(form.hidden, form.d, bias=False)
        self.gains = nn.Parameter(torch.ones(form.experts, form.hidden))
        self.register_buffer("w1", library(form.experts, form.hidden, form.d))

    def forward(self, x, batch):
        query, chosen, gates, _ = self.route(x)
        order, ends, back = self.sort(chosen)
        token = order // self.form.top_k
        if self.form.shift:
            place = batch.past[token, chosen.reshape(-1)[order] % self.form.shift]
            rows = batch.table(half(x))[place]
        else:
            rows = half(x)[token]
        rows = grouped(rows, self.w1.transpose(1, 2), ends)
        rows = rows * self.gains.to(rows.dtype)[chosen.reshape(-1)[order]]
        modulation = self.combine(rows, back, gates)
        hidden = self.up(self.conv(x, batch) if self.conv else x)
        hidden = F.gelu(hidden + modulation) if self.form.additive else F.gelu(hidden) * (1 + modulation)
        return self.output_proj(hidden), (query, chosen, gates)


class Trained(Routed):
    """A standard mixture of experts: every weight is trained, with a load-balancing loss."""

    def __init__(self, form):
        super().__init__(form)
        self.w1 = nn.Parameter(library(form.experts, form.hidden, form.d))
        self.w2 = nn.Parameter(library(form.experts, form.d, form.hidden))

    def forward(self, x, batch):
        query, chosen, gates, scores = self.route(x)
        order, ends, back = self.sort(chosen)
        rows = half(x)[order // self.form.top_k]
        rows = F.gelu(grouped(rows, half(self.w1).transpose(1, 2), ends))
        rows = grouped(rows, half(self.w2).transpose(1, 2), ends)
        taken = chosen.reshape(-1)
        share = torch.zeros_like(self.usage).index_add_(0, taken, torch.ones_like(taken, dtype=torch.float))
        probability = (scores / self.log_temperature.exp()).softmax(-1).mean(0)
        loss = 0.01 * self.form.experts * (share / share.sum() * probability).sum()
        return self.combine(rows, back, gates), loss


BLOCKS = {"dense": Dense, "published": Published, "features": Features, "modulated": Modulated, "trained": Trained}


class Layer(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.heads = form.heads
        self.qkv, self.out = nn.Linear(form.d, 3 * form.d), nn.Linear(form.d, form.d)
        self.norm1, self.norm2 = nn.LayerNorm(form.d), nn.LayerNorm(form.d)
        self.block = BLOCKS[form.block](form)

    def attention(self, x, batch):
        d = x.shape[-1]
        q, k, v = half(self.qkv(x)).view(-1, 3, self.heads, d // self.heads).unbind(1)
        if batch.starts is None:
            q, k, v = (t.reshape(batch.rows, batch.length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
            mixed = causal_attention(q, k, v).transpose(1, 2)
        else:
            mixed = varlen_attn(q.contiguous(), k.contiguous(), v.contiguous(), batch.starts, batch.starts,
                                batch.length, batch.length, **CAUSAL)
        return self.out(mixed.reshape(-1, d))

    def forward(self, x, batch):
        x = self.norm1(x + self.attention(x, batch))
        y, routed = self.block(x, batch)
        return self.norm2(x + y), routed


class Model(nn.Module):
    def __init__(self, form, length):
        super().__init__()
        d = form.d
        self.embed, self.head = nn.Embedding(VOCABULARY, d), nn.Linear(d, VOCABULARY)
        self.layers = nn.ModuleList(Layer(form) for _ in range(form.layers))
        angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        self.register_buffer("places", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))
        self.scale = math.sqrt(d)

    def forward(self, batch):
        x = self.scale * self.embed(batch.tokens) + self.places[batch.positions]
        routed = []
        for layer in self.layers:
            x, one = layer(x, batch)
            routed.append(one)
        loss = F.cross_entropy(self.head(x).float(), batch.targets, ignore_index=-100)
        for layer, one in zip(self.layers, routed):
            if isinstance(layer.block, Trained):
                loss = loss + one
        return loss, routed

    def update_keys(self, routed, real):
        for layer, one in zip(self.layers, routed):
            if isinstance(one, tuple):
                query, chosen, gates = one
                layer.block.update(query.detach(), chosen, gates.detach(), real)
