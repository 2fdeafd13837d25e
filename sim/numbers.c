// Number formats and approximate functions. Conversions are exact to the bit, round to nearest even.
#include "model.h"
#include <math.h>
#include <string.h>

u16 bf16_from_f32(float f) {
  u32 u = sim_bits(f);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  u += 0x7fff + ((u >> 16) & 1);
  return (u16)(u >> 16);
}

u16 f16_from_f32(float f) {
  u32 u = sim_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return 0x7fff;
  if (a >= 0x47800000) return (u16)(sign | 0x7c00); // 65536 and up, infinity
  if (a < 0x38800000) {                             // below 2^-14: a multiple of 2^-24; the sum rounds it into the low bits
    u32 rounded = sim_bits(sim_f32(a) + 0.5f) - 0x3f000000;
    return (u16)(sign | rounded);
  }
  a += 0xfff + ((a >> 13) & 1);
  return (u16)(sign | ((a - 0x38000000) >> 13)); // 65520 and up carry into infinity
}

float sim_f16_to_f32(u16 h) {
  u32 a = (u32)(h & 0x7fff) << 13, sign = (u32)(h & 0x8000) << 16;
  if (a >= 0x0f800000) return sim_f32(sign | 0x7f800000 | (a & 0x7fffff));
  return sim_f32(sim_bits(sim_f32(a) * 0x1p112f) | sign);
}

float f32_from_e4m3(u8 v) {
  u32 exponent = v >> 3 & 15, mantissa = v & 7;
  float f = (v & 127) == 127 ? NAN : exponent ? ldexpf(1.f + (float)mantissa / 8.f, (int)exponent - 7) : (float)mantissa * 0x1p-9f;
  return v & 128 ? -f : f;
}

// mantissa: stored bits; smallest: exponent of the normal range; top: code of the largest value.
static u8 fp8_from_f32(float x, int mantissa, int smallest, float largest, u32 top) {
  u32 sign = sim_bits(x) >> 24 & 128;
  x = fabsf(x);
  if (x != x) return 127; /* of either sign, as the GPU does */
  if (x >= largest) return (u8)(sign | top);
  if (x == 0) return (u8)sign;
  int e = 0;
  frexpf(x, &e);
  int exponent = e - 1 < smallest ? smallest : e - 1;
  u32 steps = (u32)rintf(ldexpf(x, mantissa - exponent)); // parts of 2^exponent, ties to even; a carry runs into the exponent
  u32 code = ((u32)(exponent - smallest) << mantissa) + steps;
  return (u8)(sign | (code > top ? top : code));
}

static u8 e4m3_from_f32(float x) { return fp8_from_f32(x, 3, -6, 448.f, 126); }
static u8 e5m2_from_f32(float x) { return fp8_from_f32(x, 2, -14, 57344.f, 123); }

u32 sim_pack_bf16(float lo, float hi) { return bf16_from_f32(lo) | (u32)bf16_from_f32(hi) << 16; }
u32 sim_pack_f16(float lo, float hi) { return f16_from_f32(lo) | (u32)f16_from_f32(hi) << 16; }
u32 sim_cvt_bf16x2(sim_place *at, float lo, float hi) {
  check_poison(sim_self, at, &lo, 1), check_poison(sim_self, at, &hi, 1);
  return sim_pack_bf16(lo, hi);
}
u32 sim_cvt_f16x2(sim_place *at, float lo, float hi) {
  check_poison(sim_self, at, &lo, 1), check_poison(sim_self, at, &hi, 1);
  return sim_pack_f16(lo, hi);
}
u32 sim_pack_e4m3(float x0, float x1, float x2, float x3) {
  return e4m3_from_f32(x0) | (u32)e4m3_from_f32(x1) << 8 | (u32)e4m3_from_f32(x2) << 16 | (u32)e4m3_from_f32(x3) << 24;
}
u32 sim_pack_e5m2(float x0, float x1, float x2, float x3) {
  return e5m2_from_f32(x0) | (u32)e5m2_from_f32(x1) << 8 | (u32)e5m2_from_f32(x2) << 16 | (u32)e5m2_from_f32(x3) << 24;
}
u32 sim_e4m3x2_to_f16x2(u16 v) { return f16_from_f32(f32_from_e4m3((u8)v)) | (u32)f16_from_f32(f32_from_e4m3((u8)(v >> 8))) << 16; }

static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.f, x) : x; }
float sim_exp2(sim_place *at, float x) {
  check_poison(sim_self, at, &x, 1);
  return flush(exp2f(flush(x)));
}
float sim_log2(float x) { return flush(log2f(flush(x))); }
float sim_tanh(float x) { return tanhf(x); }
float sim_rcp(float x) { return flush(1.f / flush(x)); }

static float lo16(u32 x) { return sim_f16_to_f32((u16)x); }
static float hi16(u32 x) { return sim_f16_to_f32((u16)(x >> 16)); }
static float lob(u32 x) { return f32_from_bf16((u16)x); }
static float hib(u32 x) { return f32_from_bf16((u16)(x >> 16)); }
u32 sim_exp2_f16x2(u32 x) { return f16_from_f32(exp2f(lo16(x))) | (u32)f16_from_f32(exp2f(hi16(x))) << 16; }
u32 sim_exp2_bf16x2(u32 x) { return bf16_from_f32(flush(exp2f(flush(lob(x))))) | (u32)bf16_from_f32(flush(exp2f(flush(hib(x))))) << 16; }

// The exact a b + c of small formats fits a double up to the last bit or so of c; rounding it to odd first makes the second rounding right.
static float fma_round_odd(float a, float b, float c) {
  double p = (double)a * b, s = p + c, t = s - p;
  double error = (p - (s - t)) + (c - t);
  u64 bits;
  if (error != 0 && isfinite(s)) { // inexact: make the last bit odd, towards the truth
    memcpy(&bits, &s, sizeof bits);
    if (!(bits & 1)) {
      bits = (error > 0) == (s > 0) ? bits + 1 : bits - 1;
      memcpy(&s, &bits, sizeof s);
    }
  }
  float f = (float)s;
  u32 u = sim_bits(f);
  if ((double)f != s && isfinite(f) && !(u & 1)) u = fabs(s) > fabs((double)f) ? u + 1 : u - 1; // to odd again; from 0 to the least number
  return sim_f32(u);
}
u32 sim_fma_f16x2(u32 a, u32 b, u32 c) {
  return f16_from_f32(fma_round_odd(lo16(a), lo16(b), lo16(c))) | (u32)f16_from_f32(fma_round_odd(hi16(a), hi16(b), hi16(c))) << 16;
}
u32 sim_fma_bf16x2(u32 a, u32 b, u32 c) {
  return bf16_from_f32(fma_round_odd(lob(a), lob(b), lob(c))) | (u32)bf16_from_f32(fma_round_odd(hib(a), hib(b), hib(c))) << 16;
}

void decode_elements(float *out, const void *in, int type, u32 count) {
  const u8 *bytes = in;
  u16 h;
  if (type == SIM_E4M3) {
    static _Thread_local float table[256];
    static _Thread_local int filled;
    if (!filled) {
      for (u32 i = 0; i < 256; i++) table[i] = f32_from_e4m3((u8)i);
      filled = 1;
    }
    for (u32 i = 0; i < count; i++) out[i] = table[bytes[i]];
  } else if (type == SIM_BF16) {
    for (u32 i = 0; i < count; i++) memcpy(&h, bytes + 2 * i, 2), out[i] = f32_from_bf16(h);
  } else {
    for (u32 i = 0; i < count; i++) memcpy(&h, bytes + 2 * i, 2), out[i] = sim_f16_to_f32(h);
  }
}
