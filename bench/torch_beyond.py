"""PyTorch's attention on the cases of gpu_beyond that its kernels run: cuDNN and FlashAttention-2 behind scaled_dot_product_attention. Prints the same CSV.

    torch_beyond.py [--reps N] [--only WORD]

Not run: packed batches and windows (no such argument), and whatever a backend refuses, which is reported as a line that says so.
"""
import argparse

import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel

from torch_peers import BACKENDS, median_ms

FOOTPRINT = 400 << 20  # bytes of keys and values that calls go through, several times the L2 cache

# name, head_dim, head_dim_v, causal, batch, heads, heads_kv, seqlen_q, seqlen_k: as in gpu_beyond.c
CASES = (
    [("decode", 128, 128, 0, batch, 32, 8, 1, keys) for batch in (1, 8, 64) for keys in (4096, 16384, 65536)]
    + [("gqa", 128, 128, causal, 4, 32, 8, 4096, 4096) for causal in (0, 1)]
    + [("long", 128, 128, causal, 1, 16, 16, 131072, 131072) for causal in (0, 1)]
    + [("odd", 128, 128, causal, batch, 16, 16, n, n) for causal in (0, 1) for batch, n in ((16, 1000), (16, 1023), (4, 4097))]
    + [("packed-dense", 128, 128, causal, 32, 16, 16, 1024, 1024) for causal in (1, 0)]
    + [("d192-128", 192, 128, causal, 4, 16, 16, 4096, 4096) for causal in (0, 1)]
)


def measure(name, case, reps):
    label, d, dv, causal, batch, heads, heads_kv, rows, keys = case
    make = lambda s, h, x: torch.randn(batch, s, h, x, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    copies = min(64, FOOTPRINT // (2 * batch * keys * heads_kv * (d + dv)) + 1)
    q = make(rows, heads, d)
    kv = [(make(keys, heads_kv, d), make(keys, heads_kv, dv)) for _ in range(copies)]
    turn = 0

    def call():
        nonlocal turn
        k, v = kv[turn % copies]
        turn += 1
        return F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=heads != heads_kv)

    with sdpa_kernel([BACKENDS[name]]):
        ms = median_ms(call, reps)
    pairs = batch * heads * (rows * (rows + 1) / 2 if causal else rows * keys)
    moved = 2 * (d + dv) * batch * (rows * heads + keys * heads_kv)
    print(
        f"{name},{label},{d},{dv},{causal},-1,{batch},{heads},{heads_kv},{rows},{keys},,{ms:.4f},"
        f"{2 * (d + dv) * pairs / ms * 1e-9:.1f},{moved / ms * 1e-6:.0f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reps", type=int, default=15)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.manual_seed(0)
    print("impl,case,head_dim,head_dim_v,causal,window,batch,heads,heads_kv,seqlen_q,seqlen_k,splits,ms,tflops,gbs", flush=True)
    for case in CASES:
        if options.only not in case[0]:
            continue
        for name in BACKENDS:
            try:
                measure(name, case, options.reps)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                print(f"{name},{case[0]},refused: {str(error).splitlines()[0][:100]}", flush=True)


if __name__ == "__main__":
    main()
