/* The layers of the model, each forward and backward, by hand.
 *
 * Arrays are row-major floats; n counts rows, one a character of the batch. A backward function takes dy, the gradient of the loss by its
 * layer's output, and adds to the gradients of its inputs and parameters: what is used twice gets the sum of both uses, and a residual
 * connection needs no code of its own. Attention is in attention.h: glint computes it. */
#ifndef TRAIN_LAYERS_H
#define TRAIN_LAYERS_H
#include <stdint.h>

/* x[i] = characters[token[i]]. */
void embed_forward(float *x, const uint8_t *token, const float *characters, int64_t n, int64_t width);
void embed_backward(float *dcharacters, const float *dx, const uint8_t *token, int64_t n, int64_t width);

/* RMSNorm (Zhang and Sennrich, 2019): y = gain * x * scale, where scale = 1 / sqrt(mean of x^2) of the row is kept for the way back. */
void norm_forward(float *y, float *scale, const float *x, const float *gain, int64_t n, int64_t width);
void norm_backward(float *dx, float *dgain, const float *dy, const float *x, const float *scale, const float *gain, int64_t n,
                   int64_t width);

/* y += x w, w being [inputs][outputs]. It adds, so that y may hold the residual stream already. */
void linear_forward(float *y, const float *x, const float *w, int64_t n, int64_t inputs, int64_t outputs);
void linear_backward(float *dx, float *dw, const float *dy, const float *x, const float *w, int64_t n, int64_t inputs, int64_t outputs);

/* Rotary embedding (Su et al., 2021), in place: values c and c + head_dim / 2 of each head of q and k are turned by position / 10000^(2 c /
 * head_dim), so that q . k depends on how far apart the two stand. The gradient is turned back: direction is 1 forward, -1 backward. */
void rotate(float *qkv, int64_t n, int64_t seqlen, int64_t heads, int64_t head_dim, int direction);

/* SwiGLU (Shazeer, 2020): z holds rows [gate, up]; y = gate * sigmoid(gate) * up. */
void gate_forward(float *y, const float *z, int64_t n, int64_t hidden);
void gate_backward(float *dz, const float *dy, const float *z, int64_t n, int64_t hidden);

/* Mean over the rows of -log softmax(logits)[target], in nats; writes its gradient. */
double cross_entropy(float *dlogits, const float *logits, const uint8_t *target, int64_t n, int64_t classes);
#endif
