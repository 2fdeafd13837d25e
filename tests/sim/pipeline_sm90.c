// A small forward pass in the structure of a Hopper kernel: one producer warpgroup, two consumers in ping-pong, K and V in a ring of two
// stages, the next Q K^T in flight during the softmax, O through swizzled shared memory and TMA. -DFAULT=1..6 plants the faults that such
// pipelines are prone to:
//   1 V's TMA is not waited for          2 Q K^T's wgmma is not waited for     3 16 bytes too many are expected on V's barrier
//   4 no swizzle in the epilogue         5 V's buffer is released before its wgmma has finished
//   6 K's buffer is released just before the wait for Q K^T
#include "pipeline_sm90.h"
#include "sm90.h"

#ifndef FAULT
#define FAULT 0
#endif
#define D             128
#define BM            128
#define BN            128
#define STAGES        2
#define Q_BYTES       (BM * D * 2)
#define KV_BYTES      (BN * D * 2)
#define SMEM_K        Q_BYTES
#define SMEM_V        (SMEM_K + STAGES * KV_BYTES)
#define SMEM_O        (SMEM_V + STAGES * KV_BYTES)
#define SMEM_BARRIERS (SMEM_O + Q_BYTES)

FN u32 q_full(u32 s) { return s + SMEM_BARRIERS; }
FN u32 k_full(u32 s, u32 i) { return s + SMEM_BARRIERS + 8 + 8 * i; }
FN u32 k_empty(u32 s, u32 i) { return k_full(s, STAGES + i); }
FN u32 v_full(u32 s, u32 i) { return k_full(s, 2 * STAGES + i); }
FN u32 v_empty(u32 s, u32 i) { return k_full(s, 3 * STAGES + i); }

FN void init(u32 s) {
  mbarrier_init(q_full(s), 1);
  for (u32 i = 0; i < STAGES; i++) {
    mbarrier_init(k_full(s, i), 1);
    mbarrier_init(v_full(s, i), 1);
    mbarrier_init(k_empty(s, i), 2);
    mbarrier_init(v_empty(s, i), 2);
  }
  fence_mbarrier_init();
}

FN void load(u32 dst, const tensor_map *map, u32 bar, u32 rows, u32 row) {
  for (u32 c = 0; c < D / 64; c++) tma_load_2d(dst + c * rows * 128, map, bar, (i32)(64 * c), (i32)row);
}

FN void produce(u32 s, const pipeline_params *p, u32 row) {
  mbarrier_arrive_expect_tx(q_full(s), Q_BYTES);
  for (u32 g = 0; g < 2; g++) load(s + g * 64 * D * 2, &p->q, q_full(s), 64, row + 64 * g);
  for (u32 n = 0; n < p->keys / BN; n++) {
    u32 i = n % STAGES, parity = n / STAGES % 2 ^ 1;
    mbarrier_wait(k_empty(s, i), parity);
    mbarrier_arrive_expect_tx(k_full(s, i), KV_BYTES);
    load(s + SMEM_K + i * KV_BYTES, &p->k, k_full(s, i), BN, n * BN);
    mbarrier_wait(v_empty(s, i), parity);
    mbarrier_arrive_expect_tx(v_full(s, i), KV_BYTES + (FAULT == 3 ? 16 : 0));
    load(s + SMEM_V + i * KV_BYTES, &p->v, v_full(s, i), BN, n * BN);
  }
}

FN void issue_qk(float *scores, u32 q, u32 k) {
  wgmma_fence();
  for (u32 i = 0; i < D / 16; i++)
    wgmma_m64nNk16_bf16_ss(BN, scores, wgmma_descriptor(q + i / 4 * 64 * 128 + i % 4 * 32, 16, 1024, 1),
                           wgmma_descriptor(k + i / 4 * BN * 128 + i % 4 * 32, 16, 1024, 1), i != 0);
  wgmma_commit();
}
FN void issue_pv(float *o, const u32 *probabilities, u32 v, int accumulate) {
  wgmma_fence();
  for (u32 i = 0; i < BN / 16; i++)
    wgmma_m64nNk16_bf16_rs_tb(D, o, probabilities + 4 * i, wgmma_descriptor(v + i * 2048, BN * 128, 1024, 1), i != 0 || accumulate);
  wgmma_commit();
}

// Online softmax of the thread's two rows; returns the factors that o owes.
FN void softmax(float *scores, float *max, float *sum, float *rescale, float scale_log2) {
  for (u32 r = 0; r < 2; r++) {
    float m = max[r];
    for (u32 j = 0; j < BN / 8; j++) m = max_f32(m, max_f32(scores[4 * j + 2 * r], scores[4 * j + 2 * r + 1]));
    m = max_f32(m, shfl_xor_f32(m, 1));
    m = max_f32(m, shfl_xor_f32(m, 2));
    rescale[r] = exp2_approx((max[r] - m) * scale_log2);
    max[r] = m;
    sum[r] *= rescale[r];
    for (u32 j = 0; j < BN / 8; j++)
      for (u32 i = 0; i < 2; i++) {
        float e = exp2_approx((scores[4 * j + 2 * r + i] - m) * scale_log2);
        scores[4 * j + 2 * r + i] = e;
        sum[r] += e;
      }
  }
}

FN void store(u32 s, const pipeline_params *p, float *o, float *sum, u32 consumer, u32 row) {
  u32 lane = tid() % 32, out = s + SMEM_O + consumer * 64 * D * 2, r = tid() % 128 / 32 * 16 + (lane / 8 & 1) * 8 + lane % 8;
  for (u32 i = 0; i < 2; i++) {
    sum[i] += shfl_xor_f32(sum[i], 1);
    sum[i] += shfl_xor_f32(sum[i], 2);
  }
  for (u32 j = 0; j < D / 16; j++) {
    u32 chunk = 2 * j + lane / 16, x[4];
    for (u32 i = 0; i < 4; i++) x[i] = pack_bf16(o[8 * j + 2 * i] / sum[i % 2], o[8 * j + 2 * i + 1] / sum[i % 2]);
    stmatrix_x4(out + chunk / 8 * 64 * 128 + r * 128 + ((FAULT == 4 ? chunk % 8 : chunk % 8 ^ (r & 7)) << 4), x);
  }
  fence_proxy_async();
  bar_sync(4 + consumer, 128);
  if (tid() % 128 == 0) {
    for (u32 c = 0; c < D / 64; c++) tma_store_2d(&p->o, out + c * 64 * 128, (i32)(64 * c), (i32)(row + 64 * consumer));
    tma_store_commit();
    tma_store_wait(0);
  }
}

FN void consume(u32 s, const pipeline_params *p, u32 consumer, u32 row) {
  u32 q = s + consumer * 64 * D * 2, probabilities[BN / 4], blocks = p->keys / BN, leader = tid() % 128 == 0;
  float o[D / 2], scores[BN / 2], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, rescale[2];
  if (consumer == 0) bar_arrive(1, 256);
  mbarrier_wait(q_full(s), 0);
  for (u32 n = 0; n <= blocks; n++) { // Q K^T of block n beside P V of block n - 1
    u32 i = n % STAGES, before = (n + STAGES - 1) % STAGES;
    if (n < blocks) mbarrier_wait(k_full(s, i), n / STAGES % 2);
    bar_sync(1 + consumer, 256);
    if (n < blocks) issue_qk(scores, q, s + SMEM_K + i * KV_BYTES);
    if (n) {
      if (FAULT != 1) mbarrier_wait(v_full(s, before), (n - 1) / STAGES % 2);
      issue_pv(o, probabilities, s + SMEM_V + before * KV_BYTES, n > 1);
    }
    if (!(consumer && n == blocks)) bar_arrive(1 + (consumer ^ 1), 256);
    if (n < blocks) {
      if (FAULT == 6 && leader) mbarrier_arrive(k_empty(s, i));
      if (FAULT != 2) {
        if (n)
          wgmma_wait(1);
        else
          wgmma_wait(0);
      }
      if (FAULT != 6 && leader) mbarrier_arrive(k_empty(s, i));
      softmax(scores, max, sum, rescale, p->scale_log2);
    }
    if (n) {
      if (FAULT == 5 && leader) mbarrier_arrive(v_empty(s, before));
      wgmma_wait(0);
      if (FAULT != 5 && leader) mbarrier_arrive(v_empty(s, before));
      for (u32 j = 0; n < blocks && j < D / 2; j++) o[j] *= rescale[j / 2 % 2];
    }
    for (u32 j = 0; n < blocks && j < BN / 4; j++) probabilities[j] = pack_bf16(scores[2 * j], scores[2 * j + 1]);
  }
  store(s, p, o, sum, consumer, row);
}

KERNEL(PIPELINE, 384, pipeline_params) {
  u32 s = smem_base(), row = block_id_x() * BM;
  if (tid() == 0) init(s);
  cta_sync();
  if (tid() < 128) {
    setmaxnreg_dec(40);
    if (tid() == 0) produce(s, &p, row);
  } else {
    setmaxnreg_inc(232);
    consume(s, &p, tid() / 128 - 1, row);
  }
}
