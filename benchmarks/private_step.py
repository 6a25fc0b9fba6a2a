"""What does a private training step cost beside an ordinary one, and beside Opacus? One table, arms interleaved.

Correctness first: norms against float64, the clipped sum against autograd, the GPU kernels against the same in torch.

    python benchmarks/private_step.py --device cuda --precisions tf32,bf16 --rows rows.jsonl --budget 450
    python benchmarks/private_step.py --device cpu --size small --shapes 4x128,16x128
    ... --peers DIR   a folder of unpacked wheels (opacus 1.6.0, opt_einsum): pip download opacus==1.6.0 opt-einsum
                      --no-deps -d wheels && for w in wheels/*.whl; do unzip -qd DIR $w; done
    ... --profile 1   the kernels on which one private step spends its time, and the routes that were chosen

Memory is that of all tensors at the worst moment of a step: weights, moments, gradients and what is kept for them.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from rows import asked, finish
from torch import nn

import engram

SIZES = {
    "gpt2": (768, 12, 12, 50257),
    "small": (256, 4, 4, 8192),
    "tiny": (32, 2, 2, 101),
}  # width, depth, heads, words
OURS = ("book-keeping", "ghost")
PEERS = ("opacus hooks", "opacus ghost")
CLIP, NOISE, RATE = 0.1, 1.0, 1e-4


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.mixed(self.before(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.after(x)), approximate="tanh"))


class GPT(nn.Module):
    """The shape of GPT-2. Position ids are contiguous with a batch dimension, for the peers' sake."""

    def __init__(self, size, length, tied):
        super().__init__()
        width, depth, heads, words = SIZES[size]
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, 0, 0.02)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids).contiguous()
        x = self.words(ids) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


class Answers(nn.Module):
    """A transformers model that answers its logits."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, ids):
        return self.inner(input_ids=ids, use_cache=False).logits


def built(args, length, device):
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        torch.random.manual_seed(0)
        if args.model == "own":
            return GPT(args.size, length, args.tied)
        from transformers import GPT2Config, GPT2LMHeadModel

        width, depth, heads, words = SIZES[args.size]
        config = GPT2Config(
            n_embd=width, n_layer=depth, n_head=heads, vocab_size=words, n_positions=length, tie_word_embeddings=args.tied,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        return Answers(GPT2LMHeadModel(config)).train()


def losses(logits, ids):
    """[record] the mean cross-entropy of the next token; the last position has none."""
    flat = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return flat.view(len(ids), -1).mean(1)


class Arm:
    """One way to take a step; `step()` is what is timed."""

    def __init__(self, name, args, batch, length, device, precision):
        self.name, self.device, self.precision = name, device, precision
        self.model = built(args, length, device)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 1e-5)
        stream = torch.Generator().manual_seed(1)
        self.ids = torch.randint(SIZES[args.size][3], (batch, length), generator=stream).to(device)
        self.step = getattr(self, "_" + name.replace(" ", "_").replace("-", "_"))
        if name in OURS:
            self.private = engram.private(
                self.model,
                self.optimiser,
                noise_multiplier=NOISE,
                clip_norm=CLIP,
                expected_batch=batch,
                rate=RATE,
                mode=name,
            )
        elif name == "opacus hooks":
            from opacus.grad_sample import GradSampleModule
            from opacus.optimizers import DPOptimizer

            self.model = GradSampleModule(self.model, loss_reduction="sum")
            self.optimiser = DPOptimizer(
                self.optimiser,
                noise_multiplier=NOISE,
                max_grad_norm=CLIP,
                expected_batch_size=batch,
                loss_reduction="sum",
            )
        elif name == "opacus ghost":
            from opacus.grad_sample import GradSampleModuleFastGradientClipping
            from opacus.optimizers import DPOptimizerFastGradientClipping

            self.model = GradSampleModuleFastGradientClipping(
                self.model, loss_reduction="sum", max_grad_norm=CLIP, use_ghost_clipping=True
            )
            self.optimiser = DPOptimizerFastGradientClipping(
                self.optimiser,
                noise_multiplier=NOISE,
                max_grad_norm=CLIP,
                expected_batch_size=batch,
                loss_reduction="sum",
            )

    def forward(self):
        narrow = torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")
        with narrow:
            return losses(self.model(self.ids), self.ids)

    def _plain(self):
        self.optimiser.zero_grad(set_to_none=True)
        self.forward().mean().backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def _book_keeping(self):
        self.private.backward(self.forward())
        self.private.step()

    _ghost = _book_keeping

    def _opacus_hooks(self):
        self.optimiser.zero_grad(set_to_none=True)
        self.forward().sum().backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def _opacus_ghost(self):
        from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

        self.optimiser.zero_grad(set_to_none=True)
        loss = self.forward()
        DPTensorFastGradientClipping(self.model, self.optimiser, loss, loss_reduction="sum").backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)


def synchronised(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def cleared(device):
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def precise(precision):
    torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
    torch.backends.cudnn.allow_tf32 = precision != "float32"


def reference_norms(args, batch, length, device, precision, count):
    """[record] the first norms, one record after another, in float64."""
    arm = Arm("plain", args, batch, length, device, precision)
    model = arm.model.double()
    found = []
    for i in range(min(count, batch)):
        model.zero_grad(set_to_none=True)
        losses(model(arm.ids[i : i + 1]), arm.ids[i : i + 1]).sum().backward()
        found.append(
            torch.stack([p.grad.square().sum() for p in model.parameters() if p.grad is not None]).sum().sqrt()
        )
    return torch.stack(found)


def checked(args, batch, length, device, precision):
    """Relative errors: of the norms against float64, and of the unclipped sum against autograd's own."""
    expected = reference_norms(args, batch, length, device, precision, 3)
    cleared(device)
    arm = Arm("book-keeping", args, batch, length, device, precision)
    exact = engram.private
    arm.private.release()
    arm.private = exact(arm.model, arm.optimiser, noise_multiplier=0, clip_norm=float("inf"), expected_batch=1)
    arm.private.backward(arm.forward())
    norms = arm.private.norms[: len(expected), 0]
    gathered = {p: v.clone() for p, v in arm.private._batch.totals.views(arm.private._batch.total()).items()}
    arm.private.zero_grad()
    arm.private.release()
    arm.forward().sum().backward()
    apart = sum((gathered[p] - p.grad).double().square().sum() for p in gathered)
    whole = sum(p.grad.double().square().sum() for p in gathered)
    return float((norms / expected - 1).abs().max()), float((apart / whole).sqrt())


def kernels_checked(device):
    """The Triton kernels against float64, on shapes that do not divide by their tiles; seconds beside torch's own."""
    from engram.clipping import kernels, products

    if not kernels.work(device):
        print(
            "the Triton kernels do not run here, or tell something else than torch: they will not be used", flush=True
        )
        return
    for dtype in (torch.float32, torch.bfloat16):
        for batch, positions, m, n in (
            (3, 5, 7, 9),
            (2, 64, 32, 33),
            (4, 100, 768, 50257),
            (16, 256, 768, 2304),
            (4, 1024, 768, 768),
        ):
            left = torch.randn(batch, positions, m, device=device).to(dtype)
            right = torch.randn(batch, positions, n, device=device).to(dtype)
            wide = products.gram(left.double(), right.double())
            told = kernels.gram_squares(left, right)
            error = float((told / wide - 1).abs().max())
            fused, plain = (timed(partial(f, left, right), device) for f in (kernels.gram_squares, products.gram))
            print(
                f"gram {dtype} {batch}x{positions} {m}x{n}: error {error:.1e}, fused {fused:.3f} ms, torch {plain:.3f} ms"
                f"{'' if error < (5e-3 if torch.backends.cuda.matmul.allow_tf32 else 2e-5) else '  WRONG'}",
                flush=True,
            )
    x, g = torch.randn(3, 37, 100, device=device), torch.randn(3, 37, 100, device=device)
    _, mean, scale = torch.native_layer_norm(x, [100], None, None, 1e-5)
    one, other = kernels.layer_norm_sums(x, g, mean, scale)
    error = max(float((one - (g * (x - mean) * scale).sum(1)).abs().max()), float((other - g.sum(1)).abs().max()))
    print(f"layer norm sums: error {error:.1e}{'' if error < 1e-4 else '  WRONG'}", flush=True)


def timed(work, device, repeats=10):
    for _ in range(3):
        work()
    spent = []
    for _ in range(repeats):
        synchronised(device)
        start = time.perf_counter()
        work()
        synchronised(device)
        spent.append(1e3 * (time.perf_counter() - start))
    return statistics.median(spent)


def peak(*asked_for):
    """GiB of one step of an arm alone, its weights and moments included."""
    device = asked_for[4]
    cleared(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    arm = Arm(*asked_for)
    for _ in range(3):
        arm.step()
    if device.type != "cuda":
        return (held(arm) + grown(arm)) / 2**30
    torch.cuda.reset_peak_memory_stats(device)
    arm.step()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**30


def held(arm):
    """Bytes of weights and moments on a processor."""
    moments = [v for state in arm.optimiser.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in [*arm.model.parameters(), *moments])


def grown(arm):
    """The most bytes that tensors take within one step on a processor, as its allocator says."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        arm.step()
    told = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(accumulate(e.nbytes() for e in sorted(told, key=lambda e: e.start_ns())))


def measured(names, args, batch, length, device, precision):
    """{arm: (milliseconds of each repeat, GiB)}; an arm that fails is named with its reason and left out."""
    room, arms = dict.fromkeys(names), {}
    for name in names:
        try:
            if args.memory:
                room[name] = peak(name, args, batch, length, device, precision)
            arms[name] = Arm(name, args, batch, length, device, precision)
            for _ in range(args.warm_up):
                arms[name].step()
        except Exception as error:  # a peer may fail in any way; the table says so
            arms.pop(name, None)
            print(
                f"{name} failed at {batch}x{length} {precision}: {type(error).__name__}: {str(error)[:200]}", flush=True
            )
            if name in OURS or name == "plain":
                raise
        cleared(device)
    spent = {name: [] for name in arms}
    for _ in range(args.repeats):
        for name, arm in arms.items():
            synchronised(device)
            start = time.perf_counter()
            arm.step()
            synchronised(device)
            spent[name].append(1e3 * (time.perf_counter() - start))
    if args.profile:
        profiled(arms, device)
    return {name: (spent[name], room[name]) for name in arms}


def profiled(arms, device):
    """Where one step spends its time, ours beside the ordinary one."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    for name in ("plain", "book-keeping"):
        with profile(activities=kinds) as seen:
            arms[name].step()
            synchronised(device)
        order = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
        print(
            f"--- {name}\n" + seen.key_averages().table(sort_by=order, row_limit=25, max_name_column_width=70),
            flush=True,
        )
    routes = arms["book-keeping"].private.tape.routes
    for key, seconds in routes.seconds.items():
        told = ", ".join(f"{route} {1e3 * s:.3f}" for route, s in seconds.items())
        print(f"route {key}: {routes.chosen[key]}  ({told} ms)", flush=True)


def rows_of(args, names, device):
    """A row for each arm of each cell."""
    start = time.monotonic()
    for precision in (args.precisions or ("tf32,bf16" if device.type == "cuda" else "float32")).split(","):
        precise(precision)
        if device.type == "cuda" and precision != "bf16":
            kernels_checked(device)
        for shape in args.shapes.split(","):
            if time.monotonic() - start > args.budget:
                print(f"left out for want of time: {shape} {precision}", flush=True)
                continue
            batch, length = map(int, shape.split("x"))
            norm, whole = checked(args, batch, length, device, precision)
            cleared(device)
            print(f"{shape} {precision}: norms off by {norm:.1e}, sum off by {whole:.1e}", flush=True)
            found = measured(names, args, batch, length, device, precision)
            cell = {"size": args.size, "tied": bool(args.tied), "batch": shape, "numbers": precision}
            yield from (row(cell, name, found, norm) for name in found)
            cleared(device)


def row(cell, name, found, norm):
    """This arm beside the ordinary step and beside Opacus' ghost clipping of the same run."""
    spent, room = found[name]
    median = statistics.median(spent)
    quarter = statistics.quantiles(spent, n=4) if len(spent) > 1 else [median] * 3
    plain, peer = found.get("plain"), found.get("opacus ghost")
    return {
        **cell, "arm": name, "ms": median, "quartiles": f"{quarter[0]:.4g}-{quarter[2]:.4g}",
        "of the ordinary": median / statistics.median(plain[0]) if plain else None,
        "Opacus ghost over it": statistics.median(peer[0]) / median if peer else None,
        "GiB": room, "of the ordinary's": room / plain[1] if plain and room and plain[1] else None,
        "norm error": norm if name == "book-keeping" else None, "n": len(spent),
    }  # fmt: skip


def main():
    args = asked(
        __doc__, shapes="16x256,16x1024,64x100", precisions="", model="own", size="gpt2", tied=0, arms="", repeats=30,
        warm_up=5, budget=450.0, peers=None, memory=1, profile=0,
    )  # fmt: skip
    if args.peers:
        sys.path[:0] = [str(args.peers), *map(str, sorted(p for p in args.peers.iterdir() if p.is_dir()))]
    device = torch.device(args.device, 0) if args.device == "cuda" else torch.device(args.device)
    names = args.arms.split(",") if args.arms else ["plain", *OURS, *(PEERS if has_opacus() else ())]
    finish(rows_of(args, names, device), benchmark=f"private step {args.size}", args=args)


def has_opacus():
    try:
        import opacus  # noqa: F401  only whether it is there
    except ImportError:
        print("opacus is not importable: its arms are left out", flush=True)
        return False
    return True


if __name__ == "__main__":
    main()
