#!/usr/bin/env python3
"""One training step of the form with read-in and features (docs/performance.md) in PyTorch, to compare with.

    python3 bench/peer_ml.py [--rank 2] [--steps 20] [--variants packed,packed-compiled,fixed-compiled-graph]

Best effort with what PyTorch offers: choices sorted by expert and one grouped product for all of them
(torch._grouped_mm; sorted rows and a product an expert where that is missing), fused attention, bf16 with fp32 masters,
fused AdamW, torch.compile, nothing that the host has to wait for inside a step. `padded` computes all 32 rows of 768
slots, `packed` the real tokens alone, with attention over sequences of different lengths where this PyTorch has it.
`fixed` fills the packed tokens up to one length for all batches, so that a whole step, backward pass and optimizer
included, can be recorded once as a CUDA graph (`-graph`) and launched as one piece. Keys stand still. Prints a JSON
object a line: ms a step, how many of them the GPU computes (the rest it waits for its host), real tokens a second,
memory. Needs a GPU.
"""
import argparse
import inspect
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

try:
    from torch.nn.attention.varlen import varlen_attn

    causal = "is_causal" in inspect.signature(varlen_attn).parameters  # it differs between versions
    CAUSAL = {"is_causal": True} if causal else {"window_size": (-1, 0)}
except ImportError:
    varlen_attn = None

D, LAYERS, HEADS, EXPERTS, HIDDEN, CHOSEN, QUERY, VOCABULARY = 512, 10, 8, 64, 1024, 4, 64, 8192
ROWS, SLOTS, PAD = 32, 768, 1
# Batches of different lengths cannot be recorded.
VARIANTS = ["packed", "packed-compiled"] + [shape + how for shape in ("padded", "fixed")
                                            for how in ("", "-compiled", "-graph", "-compiled-graph")]


def linear(inputs, outputs, bias=True):
    return nn.Linear(inputs, outputs, bias=bias)


def grouped(rows, matrices, ends):
    """rows [n, in] sorted by group, matrices [E, in, out], ends [E]: where each group ends."""
    if hasattr(torch, "_grouped_mm"):
        return torch._grouped_mm(rows, matrices, offs=ends)
    starts = [0] + ends.tolist()
    return torch.cat([rows[a:b] @ m for a, b, m in zip(starts, starts[1:], matrices)])


class Experts(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.router = nn.Sequential(linear(D, D // 2), nn.GELU(), linear(D // 2, QUERY))
        self.log_temperature = nn.Parameter(torch.tensor(math.log(0.1)))
        self.input_proj = nn.Parameter(torch.eye(D))
        self.output_proj = nn.Parameter(torch.empty(D, HIDDEN).uniform_(-(HIDDEN**-0.5), HIDDEN**-0.5))
        self.register_buffer("numbers", torch.arange(EXPERTS))
        self.register_buffer("keys", F.normalize(torch.randn(EXPERTS, QUERY), dim=-1))
        library = torch.empty(EXPERTS, HIDDEN, D).uniform_(-(D**-0.5), D**-0.5)
        self.register_buffer("library", library.to(torch.bfloat16))
        self.rank = rank
        if rank:
            # The grouped product wants sides of at least 16 bytes: the factors are as wide as that, at no cost here.
            self.width = max(8, (rank + 7) // 8 * 8)
            self.low_a = nn.Parameter(torch.empty(EXPERTS, self.width, D).uniform_(-(D**-0.5), D**-0.5))
            self.low_b = nn.Parameter(torch.zeros(EXPERTS, HIDDEN, self.width))

    def forward(self, x):
        query = F.normalize(self.router(x).float(), dim=-1)
        with torch.autocast("cuda", enabled=False):
            score, chosen = (query @ self.keys.t()).topk(CHOSEN, dim=-1)
        gates = (score / self.log_temperature.exp()).softmax(-1)
        sorted_choices, order = chosen.reshape(-1).sort(stable=True)
        ends = torch.searchsorted(sorted_choices, self.numbers, right=True, out_int32=True)
        seen = F.linear(x, self.readin.to(x.dtype)).to(torch.bfloat16)
        rows = seen[order // CHOSEN]
        hidden = grouped(rows, self.library.transpose(1, 2), ends)
        if self.rank:
            low = grouped(rows, self.low_a.to(torch.bfloat16).transpose(1, 2), ends)
            hidden = hidden + grouped(low, self.low_b.to(torch.bfloat16).transpose(1, 2), ends)
        hidden = F.gelu(hidden)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        mixed = (hidden[back].view(-1, CHOSEN, HIDDEN) * gates.unsqueeze(-1).to(hidden.dtype)).sum(1)
        return F.linear(mixed, self.readout.to(mixed.dtype))


class Block(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.qkv, self.out = linear(D, 3 * D), linear(D, D)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.experts = Experts(rank)

    def attention(self, x, starts, longest):
        q, k, v = self.qkv(x).to(torch.bfloat16).view(-1, 3, HEADS, D // HEADS).unbind(1)
        if starts is None:
            q, k, v = (t.reshape(ROWS, SLOTS, HEADS, -1).transpose(1, 2) for t in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        else:
            mixed = causal_sequences(q, k, v, starts, longest)
        return self.out(mixed.reshape(-1, D))

    def forward(self, x, starts, longest):
        x = self.norm1(x + self.attention(x, starts, longest))
        return self.norm2(x + self.experts(x))


def causal_sequences(q, k, v, starts, longest):
    return varlen_attn(q.contiguous(), k.contiguous(), v.contiguous(), starts, starts, longest, longest, **CAUSAL)


class Model(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, D), linear(D, VOCABULARY)
        self.blocks = nn.ModuleList(Block(rank) for _ in range(LAYERS))
        angle = torch.arange(SLOTS)[:, None] * 10000.0 ** (-torch.arange(0, D, 2) / D)
        self.register_buffer("places", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

    def forward(self, tokens, positions, targets, starts, longest):
        x = math.sqrt(D) * self.embed(tokens) + self.places[positions]
        for block in self.blocks:
            x = block(x, starts, longest)
        return F.cross_entropy(self.head(x).float(), targets, ignore_index=-100)


def batches(count, packed, fixed):
    """Stories of about 215 tokens, as many as a batch has rows: (tokens, positions, targets, starts), and how many of
    their tokens are real, in the mean."""
    generator = torch.Generator().manual_seed(1)
    lengths = [(torch.randn(ROWS, generator=generator) * 85 + 215).clamp(60, SLOTS).long() for _ in range(count)]
    most = -(-max(int(one.sum()) for one in lengths) // 256) * 256
    result = []
    for own in lengths:
        tokens = torch.randint(3, VOCABULARY, (ROWS, SLOTS), generator=generator)
        inside = torch.arange(SLOTS)[None] < own[:, None]
        targets = tokens.roll(-1, 1)
        targets[torch.arange(SLOTS)[None] >= own[:, None] - 1] = -100
        positions = torch.arange(SLOTS).expand(ROWS, SLOTS)
        tokens[~inside] = PAD
        starts = None
        if packed:
            tokens, targets, positions = tokens[inside], targets[inside], positions[inside]
            if fixed:  # padding in rows of its own, as many for every batch
                left = most - int(own.sum())
                rows = torch.arange(-(-most // SLOTS)) * SLOTS
                own = torch.cat([own, (left - rows).clamp(0, SLOTS)])
                tokens, targets = F.pad(tokens, (0, left), value=PAD), F.pad(targets, (0, left), value=-100)
                positions = torch.cat([positions, torch.arange(left) % SLOTS])
            starts = F.pad(own.cumsum(0), (1, 0)).to(torch.int32).cuda()
        result.append((*(t.reshape(-1).cuda() for t in (tokens, positions, targets)), starts))
    return result, sum(int(own.sum()) for own in lengths) / count


def measure(variant, rank, steps, warmup):
    torch.manual_seed(0)
    compiled, recorded = "compiled" in variant, variant.endswith("graph")
    packed, fixed = not variant.startswith("padded"), variant.startswith("fixed")
    with torch.device("cuda"):
        model = Model(rank)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True,
                                  capturable=recorded)
    forward = torch.compile(model, dynamic=packed and not fixed) if compiled else model
    data, real = batches(4, packed, fixed)

    def step(batch):
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=not recorded):
            loss = forward(*batch, SLOTS)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    run = step
    if recorded:
        place = [t if t is None else t.clone() for t in data[0]]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(4):
                step(place)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = step(place)

        def run(batch):
            for to, source in zip(place, batch):
                if to is not None:
                    to.copy_(source)
            graph.replay()
            return kept

    for i in range(warmup):
        loss = run(data[i % len(data)])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.time()
    for i in range(steps):
        loss = run(data[i % len(data)])
    torch.cuda.synchronize()
    seconds = (time.time() - start) / steps
    memory = torch.cuda.max_memory_allocated()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for batch in data:
            run(batch)
        torch.cuda.synchronize()
    kernels = sum(event.self_device_time_total for event in profile.key_averages()) / 1e3 / len(data)
    return {
        "ms": round(1e3 * seconds, 2),
        "kernels_ms": round(kernels, 2),
        "real_tokens_per_s": round(real / seconds),
        "memory_gib": round(memory / 2**30, 2),
        "trained": sum(p.numel() for p in parameters),
        "loss": round(float(loss), 3),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=0, help="of a low-rank correction of every expert; 0: none")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=12, help="steps before; compiled code is made anew in the first")
    parser.add_argument("--variants", default="packed,packed-compiled,fixed-graph,fixed-compiled-graph",
                        help="any of: " + " ".join(VARIANTS))
    options = parser.parse_args()
    if unknown := [variant for variant in options.variants.split(",") if variant not in VARIANTS]:
        parser.error(f"there is no variant {unknown[0]}; say any of {' '.join(VARIANTS)}")
    torch.set_float32_matmul_precision("high")
    for variant in options.variants.split(","):
        line = {"peer": variant, "rank": options.rank, "torch": torch.__version__}
        try:
            if not variant.startswith("padded") and varlen_attn is None:
                raise RuntimeError("this PyTorch has no attention over sequences of different lengths")
            line |= measure(variant, options.rank, options.steps, options.warmup)
        except Exception as error:  # the others are still worth having
            line["failed"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(line), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
