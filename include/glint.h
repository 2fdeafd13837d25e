/* glint: exact attention (FlashAttention) as a plain C library. SPDX-License-Identifier: Apache-2.0
 *
 *   o = softmax(scale * q k^T + masks and biases) v
 *
 * Fill a glint_problem (zero means default everywhere), open a context, call glint_forward. docs/api.md has a tour.
 *
 * Vocabulary. batch: independent sequences. seqlen_q, seqlen_k: rows of q, rows of k and v of one sequence. heads_q, heads_kv: query
 * heads, key/value heads; query head h reads key/value head h / (heads_q / heads_kv). head_dim: columns of q and k; head_dim_v: columns of
 * v and o. Row i of a sequence stands at position i + seqlen_k - seqlen_q among the keys (aligned to the bottom right).
 *
 * The score of row i and key j, in this order:
 *   s = scale * dot(q[i], k[j]);  s = softcap * tanh(s / softcap) if softcap;  s += bias[i][j];  s -= slope * |i + seqlen_k - seqlen_q - j|
 * and -inf where causal, window or a length hides the key. A row that sees no key gives o = 0, lse = -inf (or the sink).
 * NaN and Inf in visible inputs propagate as in the formula; what lies beyond a length or in an unused page is never read into a result. Nor is
 * what the mask hides, with one exception on the cuda and sim engines: NaN or Inf in a row of k or v that is visible to some rows of q can
 * reach rows from which only causal or window hides it, because both meet in one tile (0 * NaN). */
#ifndef GLINT_H
#define GLINT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define GLINT_API __declspec(dllexport)
#elif defined(__GNUC__)
#define GLINT_API __attribute__((visibility("default")))
#else
#define GLINT_API
#endif

#define GLINT_VERSION_MAJOR 0
#define GLINT_VERSION_MINOR 1
#define GLINT_VERSION_PATCH 0

/* Result of every call. Numbers are frozen: new ones are only added. */
typedef enum glint_status {
  GLINT_OK = 0,
  GLINT_ERROR_INVALID_ARGUMENT = 1, /* a field is wrong; glint_last_error names it, its value and what was expected */
  GLINT_ERROR_UNSUPPORTED = 2,      /* right, but this engine or machine cannot do it */
  GLINT_ERROR_OUT_OF_MEMORY = 3,
  GLINT_ERROR_WORKSPACE = 4, /* problem.workspace is smaller than glint_plan asks for */
  GLINT_ERROR_DEVICE = 5,    /* the driver or the device failed; glint_last_error has its text */
  GLINT_ERROR_NOT_FOUND = 6, /* no such engine, device or library on this machine */
  GLINT_ERROR_INTERNAL = 7
} glint_status;

typedef enum glint_dtype {
  GLINT_DTYPE_NONE = 0, /* an absent tensor */
  GLINT_FLOAT32 = 1,
  GLINT_BFLOAT16 = 2,
  GLINT_FLOAT16 = 3,
  GLINT_FLOAT8_E4M3 = 4, /* finite-only e4m3 (OCP FP8): bias 7, largest 448, no infinity */
  GLINT_FLOAT8_E5M2 = 5,
  GLINT_INT32 = 6,
  GLINT_FLOAT64 = 7 /* outputs of the oracle engine only */
} glint_dtype;

typedef enum glint_engine {
  GLINT_ENGINE_AUTO = 0, /* cuda where a usable GPU is present, else cpu */
  GLINT_ENGINE_CPU = 1,
  GLINT_ENGINE_CUDA = 2,  /* pointers in a problem are device pointers */
  GLINT_ENGINE_SIM = 3,   /* the GPU kernels on a functional model of the GPU; host pointers */
  GLINT_ENGINE_ORACLE = 4 /* double precision from the formula; slow; host pointers */
} glint_engine;

/* Instruction set of the CPU engine; each includes the ones before it, up to the family break at NEON. */
typedef enum glint_isa {
  GLINT_ISA_AUTO = 0, /* best of this machine; the environment variable GLINT_ISA (portable, avx2, avx512, ...) overrides */
  GLINT_ISA_PORTABLE = 1,
  GLINT_ISA_AVX2 = 2,   /* AVX2, FMA and F16C */
  GLINT_ISA_AVX512 = 3, /* F, BW, DQ, VL */
  GLINT_ISA_AVX512_BF16 = 4,
  GLINT_ISA_AMX_BF16 = 5,
  GLINT_ISA_NEON = 6
} glint_isa;

/* A strided array. Strides count elements; all strides 0 means contiguous, row-major. Otherwise the last stride must be 1 (unless that
 * axis has length 1) and none may be negative; 0 broadcasts (inputs only). A tensor whose data is NULL is absent; a present one needs
 * dtype, rank and shape. Pointers need the alignment of one element. */
typedef struct glint_tensor {
  void *data;
  int64_t shape[4];
  int64_t stride[4];
  glint_dtype dtype;
  int32_t rank; /* 1 to 4; unused trailing entries of shape and stride must be 0 */
} glint_tensor;

/* problem.flags */
#define GLINT_DETERMINISTIC   1u /* bit-equal results from run to run, also in backward (forward always is) */
#define GLINT_BATCH_INVARIANT 2u /* a sequence's result does not depend on the batch around it (fixes the split over keys) */
#define GLINT_FP32_ACCUMULATE 4u /* FP8 only: a second fp32 accumulator for P V, so that error does not grow with length */

/* One attention problem. Set struct_size = sizeof(glint_problem) and leave the rest zero where the default is wanted. */
typedef struct glint_problem {
  size_t struct_size; /* sizeof(glint_problem) of the caller; how the struct grows without breaking old callers */
  uint32_t flags;     /* GLINT_DETERMINISTIC | GLINT_BATCH_INVARIANT | ...; default 0 */

  /* ---- tensors. q, k, v: float32, bfloat16, float16 or FP8, all of one dtype; o: that dtype or float32 (FP8 inputs: bfloat16,
   * float16 or float32; oracle: also float64) ---- */
  glint_tensor q; /* [batch, seqlen_q, heads_q, head_dim]; packed: [1, total_q, heads_q, head_dim]. head_dim 1 to 512 */
  glint_tensor k; /* [batch, seqlen_k, heads_kv, head_dim]; packed: [1, total_k, ...]; paged: [num_pages, page_size, heads_kv, head_dim] */
  glint_tensor v; /* as k, with head_dim_v columns (1 to 512) */
  glint_tensor o; /* as q, with head_dim_v columns; written */
  glint_tensor lse; /* float32 [batch, heads_q, seqlen_q]; packed: [1, heads_q, total_q]; natural log of the row's sum of exp(s), sink
                     * included; optional in forward, written; required and read in backward */

  /* ---- scores ---- */
  float scale;               /* default 0: 1 / sqrt(head_dim). Otherwise finite and positive */
  float softcap;             /* default 0: off. Otherwise finite and positive: s = softcap * tanh(s / softcap), before bias and ALiBi */
  int32_t causal;            /* 1: key j is visible to row i if j <= i + seqlen_k - seqlen_q. 0 or 1 */
  int32_t windowed;          /* 1: window_left and window_right apply. 0 or 1; with 0 both must be 0 or -1 */
  int64_t window_left;       /* keys to the left of the row's position that stay visible, inclusive; -1: all. Below -1 is refused */
  int64_t window_right;      /* the same to the right; causal limits it to 0 */
  glint_tensor alibi_slopes; /* float32 [heads_q] or [batch, heads_q] (Press et al. 2021) */
  glint_tensor sinks;        /* float32 [heads_q]: one extra logit a head that takes probability but has no value */
  glint_tensor bias;         /* float32 or q's dtype, [batch or 1, heads_q or 1, seqlen_q or 1, seqlen_k], added to the scores; packed:
                              * [batch or 1, heads_q or 1, max_seqlen_q or 1, max_seqlen_k], indexed by positions inside the sequence */

  /* ---- variable lengths. int32; on the cuda engine device pointers whose values are not checked on the host ---- */
  glint_tensor cu_seqlens_q; /* int32 [batch + 1]: sequence b owns rows cu[b] to cu[b + 1] - 1 of the packed q and o. Not decreasing,
                              * first >= 0, last <= total_q. Rows outside every sequence are not touched */
  glint_tensor cu_seqlens_k; /* int32 [batch + 1], the same for packed k and v; not with page_table */
  glint_tensor seqused_q;    /* int32 [batch]: only the first so many rows are used, at most the sequence's length, and seqlen_q of the
                              * mask is this number; other rows of o become 0 and of lse -inf */
  glint_tensor seqused_k;    /* int32 [batch]: only the first so many keys are used, at most the sequence's (or the pages') capacity */
  int64_t max_seqlen_q;      /* packed: an upper bound of the lengths; default 0: total_q. Larger is allowed, smaller is refused where
                              * lengths can be read */
  int64_t max_seqlen_k;

  /* ---- KV cache ---- */
  glint_tensor page_table;    /* int32 [batch, max_pages]: key j of sequence b is row j % page_size of page page_table[b][j / page_size];
                               * entries beyond the used length are not read. 0 <= entry < num_pages */
  int64_t page_size;          /* default 0: taken from k's shape; otherwise must equal it */
  glint_tensor cache_seqlens; /* int32 [batch]: keys in the cache before this call; needed with k_new; without it the same as seqused_k;
                               * not together with seqused_k */
  glint_tensor k_new;         /* [batch, seqlen_new, heads_kv, head_dim]: written into k behind cache_seqlens before attention (k and v are
                               * then written too); the visible length is cache_seqlens + seqlen_new; not with cu_seqlens_k */
  glint_tensor v_new;         /* with k_new: both or neither */
  glint_tensor rotary_cos;    /* float32 or q's dtype [positions, rotary_dim / 2], rotary_dim even and <= head_dim: rotates k_new at its
                               * positions and q at cache_seqlens + i (causal or windowed) or at cache_seqlens (otherwise); needs k_new */
  glint_tensor rotary_sin;    /* as rotary_cos */
  int32_t rotary_interleaved; /* 1: pairs (0,1), (2,3), ... (GPT-J); 0: pairs (i, i + rotary_dim / 2) (GPT-NeoX) */

  /* ---- split over keys ---- */
  int32_t num_splits; /* default 0: chosen by the plan; 1 or more: so many. The result does not depend on it beyond rounding */

  /* ---- dropout of probabilities (after the sum: lse does not change) ----
   * The probability of (batch b, query head h, row i, key j) is kept, and divided by 1 - p', iff u >= T where T = min(65535, round(65536 *
   * dropout_p)), p' = T / 65536 and u is 16-bit half number j % 8 of the four 32-bit words x of
   *   x = Philox4x32-10(counter = { j / 8, i, b * heads_q + h, low 32 bits of offset }, key = { low 32 bits of seed, high 32 bits of seed
   *       xor high 32 bits of offset }),
   * half 2w being the low and 2w + 1 the high half of x[w] (Salmon et al., SC 2011). i and j count inside the sequence, so that the
   * mask depends on nothing else: not on the engine, the tiling or the packing. */
  float dropout_p; /* 0 <= dropout_p < 1; default 0: off */
  uint64_t dropout_seed;
  uint64_t dropout_offset;

  /* ---- FP8 scales: value = stored * descale. Needed when q, k, v are FP8, refused otherwise. float32, positive ----
   * [1]; or [batch, heads_kv]; or [batch, heads, blocks] (heads_q for q, heads_kv for k and v), one a block of consecutive rows of the
   * sequence, rows per block = seqlen / blocks rounded up to a multiple of 16. */
  glint_tensor descale_q;
  glint_tensor descale_k;
  glint_tensor descale_v;

  /* ---- where it runs ---- */
  void *stream;           /* cuda: CUstream; default NULL: the null stream. Other engines ignore it */
  void *workspace;        /* default NULL: the context's own, grown when needed. Otherwise memory of the engine's kind, 256-byte aligned */
  size_t workspace_bytes; /* at least glint_plan_info.workspace_bytes when workspace is given */
} glint_problem;

/* Gradients for glint_backward. Absent tensors are not computed. dtype of dq, dk, dv: that of q or float32 (all outputs of the oracle
 * engine also float64). FP8: with respect to stored * descale. Rows outside every packed sequence are not touched; rows and keys that
 * are not used get 0. A KV cache (k_new, page_table) has no backward pass: GLINT_ERROR_UNSUPPORTED. */
typedef struct glint_gradients {
  size_t struct_size;  /* sizeof(glint_gradients) */
  glint_tensor d_o;    /* in: as o; needed */
  glint_tensor d_lse;  /* in: as lse, optional: gradient that arrives through lse */
  glint_tensor dq;     /* out: as q */
  glint_tensor dk;     /* out: as k, summed over the query heads of a group */
  glint_tensor dv;     /* out: as v */
  glint_tensor dsinks; /* out: float32 [heads_q] */
  glint_tensor dbias;  /* out: shape of bias, float32; summed over broadcast axes (cuda, sim: then not with GLINT_DETERMINISTIC) */
  int32_t accumulate;  /* 1: add to what the outputs hold; 0: overwrite */
} glint_gradients;

/* Q, K and V to FP8 (glint_quantize). Set struct_size and leave the rest zero where the default is wanted. A tensor that is absent is left
 * out of the call with all that belongs to it; at least one of q, k, v is needed.
 *
 * With x a row of q, k or v (of k minus its mean when smooth is set), and y = R x for q and k when rotate is set (else y = x):
 *   stored = FP8(y / descale), rounded to nearest, ties to even, saturating;   descale = largest finite |y| of the block / largest FP8 value
 * (448 or 57344; 1 where that maximum is below 2^-100 or a block has no row). NaN stays NaN; an infinity becomes the largest FP8 value, or
 * NaN throughout its row when rotated. Bit-equal on the cpu, sim and cuda engines, but for the bits of a
 * NaN.
 *
 * R = H S / sqrt(B): S random signs, H the Hadamard matrix in natural (Sylvester) order, for each run of B columns, B the largest power of
 * two that divides head_dim (head_dim 96: three of 32). R is orthogonal, so q . k stays the same, while an outlier is shared out over B
 * columns (incoherent processing: FlashAttention-3, section 3.3; QuIP, Chee et al. 2023). Rotate q and k with the same seed, or none of
 * them. Column c has the sign - iff bit c % 32 of word (c / 32) % 4 of Philox4x32-10(counter = { c / 128, 0, 0, 0 }, key = rotation_seed,
 * low half first) is set.
 *
 * Smoothing (SageAttention, Zhang et al. 2025): every score of a row shrinks by the same scale * q . mean, which softmax ignores, so o does
 * not change. lse does: it comes out smaller by that number, which lse_shift has. Not with softcap or sinks, which do not shift. */
typedef struct glint_quantization {
  size_t struct_size; /* sizeof(glint_quantization) */

  /* ---- in: float32, bfloat16 or float16, shapes as in glint_problem (not paged); q, k and v of one dtype ---- */
  glint_tensor q, k, v;
  /* ---- out: float8_e4m3 or float8_e5m2, all of one dtype, shapes as q, k, v. Rows that no sequence uses are not written ---- */
  glint_tensor q_fp8, k_fp8, v_fp8;
  /* ---- out (in where descale_given): float32, shapes and meaning as in glint_problem, whose max_seqlen must then be the same here:
   * [1], [batch, heads_kv] or [batch, heads, blocks]. One factor a block takes one pass over the tensor, as far as a block fits the
   * registers of a GPU's multiprocessor (32768 elements, 16384 of float32); the others take two ---- */
  glint_tensor descale_q, descale_k, descale_v;
  int32_t descale_given; /* 1: the factors are read (finite, positive), not made; what they cannot reach saturates. 0 or 1 */

  /* ---- lengths, as in glint_problem ---- */
  glint_tensor cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k;
  int64_t max_seqlen_q, max_seqlen_k;

  /* ---- what happens before the rounding ---- */
  int32_t rotate;         /* 1: q and k are multiplied by R. 0 or 1 */
  uint64_t rotation_seed; /* of S */
  int32_t smooth;         /* 1: subtracts from k its mean over the keys in use, of each sequence and head; 2: subtracts k_mean as given */
  glint_tensor k_mean;    /* float32 [batch, heads_kv, head_dim]: with smooth 1 written (optional), with smooth 2 read. Not rotated */
  glint_tensor lse_shift; /* out, optional, with q and smooth: float32, shape as lse: scale * q . mean, to be added to lse; rows that
                           * are not used get 0 */
  float scale;            /* of lse_shift; default 0: 1 / sqrt(head_dim) */

  /* ---- where it runs: as in glint_problem ---- */
  void *stream;
  void *workspace; /* default NULL: the context's own. Otherwise of glint_quantize_workspace bytes, 256-byte aligned */
  size_t workspace_bytes;
} glint_quantization;

typedef struct glint_options {
  size_t struct_size;  /* sizeof(glint_options) */
  glint_engine engine; /* default AUTO */
  glint_isa isa;       /* cpu: force an instruction set; refused where the machine lacks it */
  int32_t threads;     /* cpu: default 0: OpenMP's default */
  int32_t device;      /* cuda: ordinal used when no context is current; default 0 */
  int32_t arch;        /* cuda: use kernels of this architecture instead of the best, e.g. 80 on a Hopper GPU; sim: the machine to
                        * model, 80 or 90; default 0: best */
  const char *kernel;  /* cuda, sim: only kernels whose name starts so, e.g. "glint_forward_fa1"; default NULL. Copied */
} glint_options;

typedef struct glint_context glint_context;

typedef enum glint_pass { GLINT_PASS_FORWARD = 0, GLINT_PASS_BACKWARD = 1 } glint_pass;

/* What a call would do: a pure function of the problem's shape and the machine. Texts are NUL-terminated. */
typedef struct glint_plan_info {
  size_t struct_size; /* in: sizeof(glint_plan_info) of the caller */
  glint_engine engine;
  char kernel[96];  /* name of the kernel, e.g. glint_forward_sm90_bf16_d128 or cpu_avx512_f32 */
  char reason[192]; /* why this one */
  int32_t tile_q, tile_k, stages, num_splits;
  int32_t threads;          /* per block, or CPU threads */
  int32_t registers;        /* per thread; 0 if unknown */
  int64_t shared_bytes;     /* per block (cuda), or cache footprint per thread (cpu) */
  int64_t grid, waves_x100; /* blocks (or CPU work items); grid over what runs at once, times 100 */
  double flops, bytes;      /* matrix FLOPs that the visible keys need; bytes that must move at least */
  double roofline_seconds;  /* the larger of the two over this machine's ceilings; 0 if those are unknown */
  size_t workspace_bytes;
} glint_plan_info;

/* Opens a context. options may be NULL. On failure *context is NULL and glint_last_error(NULL) has the text. */
GLINT_API glint_status glint_open(const glint_options *options, glint_context **context);
GLINT_API void glint_close(glint_context *context); /* NULL is allowed */

/* Attention. A refused call writes nothing. Thread-safe: one context may be used from many threads; calls that use the context's own
 * workspace on one stream are ordered by that stream. */
GLINT_API glint_status glint_forward(glint_context *context, const glint_problem *problem);

/* Gradients of glint_forward; o and lse are its results for the same problem. Without GLINT_DETERMINISTIC, dq (and dbias where it sums over
 * broadcast axes) may differ in the last bits from run to run on engines that add to it atomically. */
GLINT_API glint_status glint_backward(glint_context *context, const glint_problem *problem, const glint_gradients *gradients);

/* Q, K and V to FP8 with scales, for glint_forward. A refused call writes nothing. Host engines and cuda (Hopper). Thread-safe. */
GLINT_API glint_status glint_quantize(glint_context *context, const glint_quantization *quantization);

/* Bytes of workspace that glint_quantize needs. A pure function of shapes and machine. */
GLINT_API glint_status glint_quantize_workspace(glint_context *context, const glint_quantization *quantization, size_t *bytes);

/* Checks the problem and says what would run. gradients may be NULL (then for GLINT_PASS_BACKWARD all of dq, dk, dv are assumed). */
GLINT_API glint_status glint_plan(glint_context *context, glint_pass pass, const glint_problem *problem, const glint_gradients *gradients,
                                  glint_plan_info *plan);

/* The engine that the context uses (never AUTO). */
GLINT_API glint_engine glint_context_engine(const glint_context *context);

/* Text about the machine and what was looked for (instruction sets, GPUs, libraries), one fact a line; at most size bytes with the NUL.
 * Returns the length that the whole text has. */
GLINT_API size_t glint_describe(glint_context *context, char *text, size_t size);

/* A fixed English sentence for a status. */
GLINT_API const char *glint_status_text(glint_status status);

/* The last error of this context on the calling thread ("" if none); with NULL, of glint_open. Valid until that thread's next glint call. */
GLINT_API const char *glint_last_error(const glint_context *context);

/* GLINT_VERSION_MAJOR * 10000 + MINOR * 100 + PATCH of the library that runs. */
GLINT_API int glint_version(void);

/* Bytes of one element; 0 for GLINT_DTYPE_NONE and unknown values. */
GLINT_API size_t glint_dtype_size(glint_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
