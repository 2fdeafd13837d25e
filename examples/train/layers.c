/* The layers. Each backward function is the derivative of the line above it. */
#include "layers.h"

#include "matmul.h"

#include <math.h>
#include <string.h>

void embed_forward(float *x, const uint8_t *token, const float *characters, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; i++) memcpy(x + i * width, characters + token[i] * width, (size_t)width * sizeof *x);
}

void embed_backward(float *dcharacters, const float *dx, const uint8_t *token, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0; c < width; c++) dcharacters[token[i] * width + c] += dx[i * width + c];
}

/* Keeps a row of zeros finite. */
#define NORM_EPSILON 1e-6f

void norm_forward(float *y, float *scale, const float *x, const float *gain, int64_t n, int64_t width) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) {
    float squares = 0;
    for (int64_t c = 0; c < width; c++) squares += x[i * width + c] * x[i * width + c];
    scale[i] = 1 / sqrtf(squares / (float)width + NORM_EPSILON);
    for (int64_t c = 0; c < width; c++) y[i * width + c] = gain[c] * x[i * width + c] * scale[i];
  }
}

/* scale depends on every x of the row: d scale / d x_c = -scale^3 x_c / width. */
void norm_backward(float *dx, float *dgain, const float *dy, const float *x, const float *scale, const float *gain, int64_t n,
                   int64_t width) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) {
    float along = 0; /* of dy * gain, along x */
    for (int64_t c = 0; c < width; c++) along += dy[i * width + c] * gain[c] * x[i * width + c];
    along *= scale[i] * scale[i] * scale[i] / (float)width;
    for (int64_t c = 0; c < width; c++) dx[i * width + c] += dy[i * width + c] * gain[c] * scale[i] - along * x[i * width + c];
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0; c < width; c++) dgain[c] += dy[i * width + c] * x[i * width + c] * scale[i];
}

void linear_forward(float *y, const float *x, const float *w, int64_t n, int64_t inputs, int64_t outputs) {
  matmul_add(y, (matrix){x, inputs, 1}, (matrix){w, outputs, 1}, n, outputs, inputs);
}

/* dx = dy w^T and dw = x^T dy: the same product, read the other way round. */
void linear_backward(float *dx, float *dw, const float *dy, const float *x, const float *w, int64_t n, int64_t inputs, int64_t outputs) {
  matmul_add(dx, (matrix){dy, outputs, 1}, (matrix){w, 1, outputs}, n, inputs, outputs);
  matmul_add(dw, (matrix){x, 1, inputs}, (matrix){dy, outputs, 1}, inputs, outputs, n);
}

void rotate(float *qkv, int64_t n, int64_t seqlen, int64_t heads, int64_t head_dim, int direction) {
  int64_t half = head_dim / 2, width = heads * head_dim;
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0; c < half; c++) {
      double angle = (double)(i % seqlen) * pow(10000, -(double)c / (double)half);
      float cosine = (float)cos(angle), sine = (float)(direction * sin(angle));
      for (int64_t h = 0; h < 2 * heads; h++) { /* those of q, and behind them those of k */
        float *a = qkv + i * 3 * width + h * head_dim + c, *b = a + half, x = *a, y = *b;
        *a = x * cosine - y * sine;
        *b = x * sine + y * cosine;
      }
    }
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

void gate_forward(float *y, const float *z, int64_t n, int64_t hidden) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) {
    const float *gate = z + i * 2 * hidden, *up = gate + hidden;
    for (int64_t c = 0; c < hidden; c++) y[i * hidden + c] = gate[c] * sigmoid(gate[c]) * up[c];
  }
}

void gate_backward(float *dz, const float *dy, const float *z, int64_t n, int64_t hidden) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) {
    const float *gate = z + i * 2 * hidden, *up = gate + hidden;
    float *dgate = dz + i * 2 * hidden, *dup = dgate + hidden;
    for (int64_t c = 0; c < hidden; c++) {
      float s = sigmoid(gate[c]), d = dy[i * hidden + c];
      dgate[c] += d * up[c] * (s + gate[c] * s * (1 - s));
      dup[c] += d * gate[c] * s;
    }
  }
}

double cross_entropy(float *dlogits, const float *logits, const uint8_t *target, int64_t n, int64_t classes) {
  double loss = 0;
  for (int64_t i = 0; i < n; i++) {
    const float *row = logits + i * classes;
    float *d = dlogits + i * classes, largest = row[0];
    for (int64_t c = 1; c < classes; c++) largest = fmaxf(largest, row[c]);
    for (int64_t c = 0; c < classes; c++) d[c] = expf(row[c] - largest);
    double sum = (double)d[0];
    for (int64_t c = 1; c < classes; c++) sum += (double)d[c];
    loss += log(sum) - (double)(row[target[i]] - largest);
    for (int64_t c = 0; c < classes; c++) d[c] = (d[c] / (float)sum - (c == target[i])) / (float)n;
  }
  return loss / (double)n;
}
