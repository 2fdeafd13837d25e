#!/usr/bin/env bash
# What `make demo` shows: attention of a real model's tensors, judged by the oracle and by outputs computed independently, and a picture.
# usage: examples/demo.sh PATH-OF-GLINT
set -euo pipefail
glint=$1
here=$(dirname "$0")
picture=$(dirname "$glint")/attention.svg

echo
echo "Queries, keys and values of all-MiniLM-L6-v2 (6 layers, 12 heads, head_dim 32) on three sentences."
echo "vs oracle: largest difference from float64 attention by this library's oracle; vs file: from outputs that numpy computed in float64."
echo
"$glint" run --check --dtype f32 "$here/data/minilm.safetensors"
echo
echo "Where head 1 of layer 3 looks in \"The animal did not cross the street because it was too tired.\" (see the row of \"it\"):"
"$glint" picture "$here/data/minilm.safetensors" --name tired.layer3 --head 1 --output "$picture"
