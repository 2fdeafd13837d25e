/* Fuzz target: glint_check on problems that start out right and are then damaged field by field.
 *
 * Input: 4 bytes choose a base (which optional tensors, pass, host); then 64 int32 values fill the index arrays, in small steps; the rest are
 * damages of 4 bytes: field, member, kind of value, value. Index arrays are real memory, as the API demands of a caller: a damage that would
 * describe more of it than there is gets cut back. Float tensors are never read by the check and point at a few bytes. */
#include "fuzz.h"
#include "work.h"

#include <math.h>
#include <string.h>

typedef struct input {
  const uint8_t *at, *end;
} input;

static uint8_t take(input *in) { return in->at < in->end ? *in->at++ : 0; }

enum { INTS = 64 };
static int32_t index_memory[INTS];
static _Alignas(64) char float_memory[64];

/* Base bits. */
enum {
  PACKED_Q = 1,
  PACKED_K = 2,
  PAGED = 4,
  APPEND = 8,
  ROTARY = 16,
  BIAS = 32,
  ALIBI = 64,
  SINKS = 128,
  USED_Q = 256,
  USED_K = 512,
  FP8 = 1024,
  BACKWARD = 2048,
  DEVICE = 4096,
  CAUSAL = 8192,
  EMPTY = 16384 /* no rows in an enormous batch */
};

static glint_tensor tensor(glint_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  void *data = dtype == GLINT_INT32 ? (void *)index_memory : (void *)float_memory;
  return (glint_tensor){.data = data, .shape = {a, b, c, d}, .dtype = dtype, .rank = rank};
}

static glint_problem base_problem(unsigned bits) {
  int packed_q = (bits & PACKED_Q) != 0, packed_k = (bits & PACKED_K) != 0 && !(bits & PAGED);
  glint_dtype dtype = bits & FP8 ? GLINT_FLOAT8_E4M3 : GLINT_FLOAT16, output = bits & FP8 ? GLINT_FLOAT32 : GLINT_FLOAT16;
  glint_problem p = {.struct_size = sizeof p, .causal = (bits & CAUSAL) != 0};
  p.q = tensor(dtype, 4, packed_q ? 1 : 2, 16, 4, 64);
  p.o = p.q, p.o.dtype = output;
  p.lse = tensor(GLINT_FLOAT32, 3, packed_q ? 1 : 2, 4, 16, 0);
  p.k = tensor(dtype, 4, packed_k ? 1 : bits & PAGED ? 8 : 2, bits & PAGED ? 4 : 16, 2, 64);
  p.v = p.k;
  if (packed_q) p.cu_seqlens_q = tensor(GLINT_INT32, 1, 3, 0, 0, 0);
  if (packed_k) p.cu_seqlens_k = tensor(GLINT_INT32, 1, 3, 0, 0, 0);
  if (bits & PAGED) p.page_table = tensor(GLINT_INT32, 2, 2, 4, 0, 0);
  if (bits & USED_Q) p.seqused_q = tensor(GLINT_INT32, 1, 2, 0, 0, 0);
  if (bits & APPEND) {
    p.k_new = p.v_new = tensor(dtype, 4, 2, 3, 2, 64);
    p.cache_seqlens = tensor(GLINT_INT32, 1, 2, 0, 0, 0);
    if (bits & ROTARY) p.rotary_cos = p.rotary_sin = tensor(GLINT_FLOAT32, 2, 64, 16, 0, 0);
  } else if (bits & USED_K) {
    p.seqused_k = tensor(GLINT_INT32, 1, 2, 0, 0, 0);
  }
  if (bits & BIAS) p.bias = tensor(GLINT_FLOAT32, 4, 1, 4, 16, 16);
  if (bits & ALIBI) p.alibi_slopes = tensor(GLINT_FLOAT32, 1, 4, 0, 0, 0);
  if (bits & SINKS) p.sinks = tensor(GLINT_FLOAT32, 1, 4, 0, 0, 0);
  if (bits & FP8) p.descale_q = p.descale_k = p.descale_v = tensor(GLINT_FLOAT32, 1, 1, 0, 0, 0);
  if (bits & EMPTY) {
    p.q.shape[0] = p.o.shape[0] = p.lse.shape[0] = p.k.shape[0] = p.v.shape[0] = (int64_t)1 << 40;
    p.q.shape[1] = p.o.shape[1] = p.lse.shape[2] = p.k.shape[1] = p.v.shape[1] = 0;
  }
  return p;
}

static glint_gradients base_gradients(const glint_problem *p) {
  glint_gradients g = {.struct_size = sizeof g, .d_o = p->o, .dq = p->q, .dk = p->k, .dv = p->v};
  return g;
}

#define TENSOR(name) offsetof(glint_problem, name)
static const size_t problem_tensors[] = {TENSOR(q),
                                         TENSOR(k),
                                         TENSOR(v),
                                         TENSOR(o),
                                         TENSOR(lse),
                                         TENSOR(alibi_slopes),
                                         TENSOR(sinks),
                                         TENSOR(bias),
                                         TENSOR(cu_seqlens_q),
                                         TENSOR(cu_seqlens_k),
                                         TENSOR(seqused_q),
                                         TENSOR(seqused_k),
                                         TENSOR(page_table),
                                         TENSOR(cache_seqlens),
                                         TENSOR(k_new),
                                         TENSOR(v_new),
                                         TENSOR(rotary_cos),
                                         TENSOR(rotary_sin),
                                         TENSOR(descale_q),
                                         TENSOR(descale_k),
                                         TENSOR(descale_v)};
#undef TENSOR
#define TENSOR(name) offsetof(glint_gradients, name)
static const size_t gradient_tensors[] = {TENSOR(d_o), TENSOR(d_lse), TENSOR(dq), TENSOR(dk), TENSOR(dv), TENSOR(dsinks), TENSOR(dbias)};
enum {
  PROBLEM_TENSORS = sizeof problem_tensors / sizeof *problem_tensors,
  GRADIENT_TENSORS = sizeof gradient_tensors / sizeof *gradient_tensors
};

static glint_tensor *tensor_at(glint_problem *p, glint_gradients *g, int i) {
  return i < PROBLEM_TENSORS ? (glint_tensor *)((char *)p + problem_tensors[i])
                             : (glint_tensor *)((char *)g + gradient_tensors[i - PROBLEM_TENSORS]);
}

/* Values that sit at the edges of something. */
static int64_t take_value(input *in) {
  static const int64_t edges[] = {0,
                                  1,
                                  -1,
                                  2,
                                  3,
                                  16,
                                  17,
                                  64,
                                  -2,
                                  512,
                                  513,
                                  INT32_MAX,
                                  (int64_t)INT32_MAX + 1,
                                  (int64_t)1 << 32,
                                  (int64_t)1 << 40,
                                  (int64_t)1 << 61,
                                  INT64_MAX,
                                  INT64_MAX - 1,
                                  INT64_MIN,
                                  65535,
                                  65536,
                                  1 << 24,
                                  (int64_t)3037000500};
  uint8_t kind = take(in), value = take(in);
  return kind & 1 ? edges[value % (sizeof edges / sizeof *edges)] : (int8_t)value;
}

static void damage_tensor(glint_tensor *t, uint8_t member, int64_t value) {
  switch (member % 12) {
  case 0: t->data = value & 1 ? float_memory : NULL; break;
  case 1: t->data = float_memory + (value & 7); break;
  case 2: t->dtype = (glint_dtype)(value & 15); break;
  case 3: t->rank = (int32_t)value; break;
  default: *(member % 12 < 8 ? &t->shape[member % 4] : &t->stride[member % 4]) = value;
  }
}

static float float_of(int64_t value) { return value == 17 ? NAN : value == 513 ? INFINITY : (float)value / 16; }

static void damage_scalar(glint_problem *p, uint8_t member, int64_t value) {
  switch (member % 18) {
  case 0: p->struct_size = (size_t)value; break;
  case 1: p->flags = (uint32_t)value; break;
  case 2: p->scale = float_of(value); break;
  case 3: p->softcap = float_of(value); break;
  case 4: p->causal = (int32_t)value; break;
  case 5: p->windowed = (int32_t)value; break;
  case 6: p->window_left = value; break;
  case 7: p->window_right = value; break;
  case 8: p->max_seqlen_q = value; break;
  case 9: p->max_seqlen_k = value; break;
  case 10: p->page_size = value; break;
  case 11: p->rotary_interleaved = (int32_t)value; break;
  case 12: p->num_splits = (int32_t)value; break;
  case 13: p->dropout_p = float_of(value); break;
  case 14: p->dropout_offset = (uint64_t)value; break;
  case 15: p->workspace_bytes = (size_t)value; break;
  case 16: p->workspace = value & 1 ? float_memory : NULL; break;
  default: p->dropout_seed = (uint64_t)value;
  }
}

/* An int32 tensor reaches no further than index_memory. */
static void cut_back(glint_tensor *t) {
  if (t->dtype != GLINT_INT32 || !t->data) return;
  t->data = index_memory;
  double reach = 1, contiguous = 1;
  int strided = 0;
  for (int i = 0; i < 4; i++) strided |= t->stride[i] != 0;
  for (int i = 0; i < 4 && i < t->rank; i++) {
    reach += (double)(t->shape[i] > 0 ? t->shape[i] - 1 : 0) * fabs((double)t->stride[i]);
    contiguous *= (double)(t->shape[i] > 0 ? t->shape[i] : 1);
  }
  if ((strided ? reach : contiguous) <= INTS) return;
  *t = tensor(GLINT_INT32, 1, 3, 0, 0, 0);
}

static void check_sequences(const glint_work *w) {
  for (int64_t b = 0; b < w->batch && b < 64; b++) {
    glint_sequence s = glint_sequence_of(w, b);
    FUZZ_REQUIRE(s.len_q >= 0 && s.used_q >= 0 && s.used_q <= s.len_q && s.len_k >= 0);
    FUZZ_REQUIRE(s.row_q >= 0 && s.row_k >= 0);
    if (w->cu_seqlens_q.data) FUZZ_REQUIRE(s.row_q + s.len_q <= w->total_q);
    if (w->cu_seqlens_k.data) FUZZ_REQUIRE(s.row_k + s.len_k <= w->total_k);
    for (int64_t i = 0; i < s.used_q && i < 64; i++) {
      int64_t first, end;
      glint_visible_keys(w, &s, i, &first, &end);
      FUZZ_REQUIRE(first >= 0 && end <= s.len_k);
    }
    for (int64_t j = 0; j < s.len_k && j < 64; j++) FUZZ_REQUIRE(glint_key_offset(w, &w->k, b, &s, j, 0) >= 0);
  }
}

static void check_accepted(const glint_work *w, int host) {
  FUZZ_REQUIRE(w->batch >= 0 && w->seqlen_q >= 0 && w->seqlen_k >= 0 && w->total_q >= 0 && w->total_k >= 0);
  FUZZ_REQUIRE(w->head_dim >= 1 && w->head_dim <= 512 && w->head_dim_v >= 1 && w->head_dim_v <= 512);
  FUZZ_REQUIRE(w->heads_q >= 0 && w->heads_kv >= 0 && (w->heads_kv == 0 || w->heads_q % w->heads_kv == 0));
  FUZZ_REQUIRE(isfinite(w->scale) && w->scale > 0 && w->window_left >= -1 && isfinite(w->keep_scale));
  if (host) check_sequences(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input in = {data, data + size};
  unsigned bits = take(&in);
  bits |= (unsigned)take(&in) << 8;
  int small = take(&in) & 15, row = 0;
  for (int i = 0; i < INTS; i++) {
    int step = i < 16 ? (int8_t)take(&in) : 0;
    row += small == 15 ? step : step & small; /* 15: also decreasing and negative ones */
    index_memory[i] = i < 16 ? row : i & 7;
  }
  /* a struct_size of a newer caller promises that many bytes */
  static struct {
    glint_problem p;
    char tail[65536];
  } caller;
  caller.p = base_problem(bits);
  caller.tail[0] = (char)(small == 14);
  glint_gradients g = base_gradients(&caller.p);
  while (in.at < in.end) {
    uint8_t field = take(&in), member = take(&in);
    int64_t value = take_value(&in);
    int slot = field % (PROBLEM_TENSORS + GRADIENT_TENSORS + 8);
    if (slot < PROBLEM_TENSORS + GRADIENT_TENSORS)
      damage_tensor(tensor_at(&caller.p, &g, slot), member, value);
    else
      damage_scalar(&caller.p, member, value);
  }
  for (int i = 0; i < PROBLEM_TENSORS + GRADIENT_TENSORS; i++) cut_back(tensor_at(&caller.p, &g, i));
  glint_work work;
  char text[512];
  memset(text, 'x', sizeof text);
  int backward = (bits & BACKWARD) != 0, host = !(bits & DEVICE);
  glint_status status =
      glint_check(&caller.p, backward ? &g : NULL, backward ? GLINT_PASS_BACKWARD : GLINT_PASS_FORWARD, host, &work, text, sizeof text);
  if (status == GLINT_OK)
    check_accepted(&work, host);
  else
    FUZZ_REQUIRE(text[0] != 'x' && text[0] != '\0' && memchr(text, 0, sizeof text));
  return 0;
}
