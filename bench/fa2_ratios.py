"""glint's Ampere kernels against FlashAttention-2: by PyTorch's copy, timed in turns in the same run, and by FlashAttention-2's own kernels,
of which only another day's figures are here (bench/peers): once as they are, once by their ratio to PyTorch's copy on that day.

    fa2_ratios.py RESULTS.csv [PEERS.csv]        RESULTS.csv: bench/gpu.sh's bench-ampere

Prints a CSV row a cell, and at the end the least and the geometric mean of each ratio.
"""
import csv
import math
import pathlib
import sys

PEERS = pathlib.Path(__file__).parent / "peers" / "h200-fa2.csv"


def rows(path):
    with open(path) as lines:
        return [r for r in csv.DictReader(l for l in lines if not l.startswith("#")) if r["dir"] == "fwd"]


def table(path, name):
    """TFLOP/s by (dtype, hdim, causal, seqlen) of the rows whose impl starts so."""
    return {tuple(r[k] for k in ("dtype", "hdim", "causal", "seqlen")): float(r["tflops"]) for r in rows(path) if r["impl"].startswith(name)}


def main():
    results = sys.argv[1]
    peers = sys.argv[2] if len(sys.argv) > 2 else PEERS
    ours, torch = table(results, "glint_forward_fa2"), table(results, "torch_fa2")
    fa2, torch_then = table(peers, "fa2"), table(peers, "torch_fa2")
    columns = {"to_torch": [], "to_fa2": [], "to_fa2_by_torch": []}
    print("dtype,hdim,causal,seqlen,glint,torch_fa2,fa2,fa2_by_torch," + ",".join(columns))
    for cell, tflops in ours.items():
        scaled = fa2[cell] / torch_then[cell] * torch[cell] if cell in fa2 and cell in torch_then and cell in torch else None
        others = {"to_torch": torch.get(cell), "to_fa2": fa2.get(cell), "to_fa2_by_torch": scaled}
        for name, other in others.items():
            if other:
                columns[name].append(tflops / other)
        text = lambda form, value: form % value if value else ""
        print(",".join(cell) + f",{tflops:.1f}," + ",".join(text("%.1f", v) for v in others.values()) + "," +
              ",".join(text("%.3f", tflops / v if v else None) for v in others.values()))
    for name, ratios in columns.items():
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"# {name}: {len(ratios)} cells, least {min(ratios):.3f}, geometric mean {mean:.3f}, {sum(r < 1 for r in ratios)} below 1")


main()
