"""FlashAttention-4's Hopper kernels (PyPI: flash-attn-4) on the papers' grid, as CSV like torch_peers.py.

Usage: fa4_peer.py [fwd|bwd|both] [head_dim ...]. Each (head_dim, causal) is compiled at its first call, before it is timed.
"""
import sys
import time

import torch
from flash_attn.cute.interface import flash_attn_func

torch.manual_seed(0)


def timed(fn, n=12, warm=3):
    """Median ms of n calls; the sleep keeps the GPU busy while the host queues, so that launch latency is not timed."""
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    times = []
    for _ in range(n):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(400_000)
        a.record()
        fn()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b))
    return sorted(times)[n // 2]


def cell(direction, head_dim, causal, seqlen):
    batch, heads = 16384 // seqlen, 2048 // head_dim
    q, k, v = (torch.randn(batch, seqlen, heads, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=direction != "fwd") for _ in range(3))
    flops = 4.0 * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1.0)

    def forward():
        out = flash_attn_func(q, k, v, causal=causal)
        return out[0] if isinstance(out, tuple) else out

    def row(name, ms, factor):
        print(f"fa4,{name},bf16,{head_dim},{int(causal)},{batch},{heads},{heads},{seqlen},{ms:.4f},{flops * factor / ms * 1e-9:.1f}", flush=True)

    if direction != "bwd":
        with torch.no_grad():
            row("fwd", timed(forward), 1.0)
    if direction != "fwd":
        out = forward()
        grad = torch.randn_like(out)
        row("bwd", timed(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)), 2.5)


def main():
    direction = sys.argv[1] if len(sys.argv) > 1 else "fwd"
    dims = [int(x) for x in sys.argv[2:]] or [64, 128, 256]
    start = time.time()
    for head_dim in dims:
        for causal in (False, True):
            for seqlen in (512, 1024, 2048, 4096, 8192, 16384):
                try:
                    cell(direction, head_dim, causal, seqlen)
                except Exception as error:  # a peer that does not run a shape is reported, not fatal
                    print(f"fa4,failed,{direction},{head_dim},{int(causal)},{seqlen},{str(error)[:160]!r}", flush=True)
                    break
    print(f"# fa4 took {time.time() - start:.0f} s with compilation", flush=True)


main()
