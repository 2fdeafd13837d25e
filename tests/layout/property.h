/* Property tests of layouts: random pairs, laws, and the shrinking of a failure to a small one. */
#ifndef GLINT_TEST_LAYOUT_PROPERTY_H
#define GLINT_TEST_LAYOUT_PROPERTY_H

#include "glint_layout.h"

typedef enum verdict { FAILS = 0, HOLDS = 1, UNDEFINED = 2 } verdict;

/* A law about one or two layouts; on FAILS it writes what it saw. */
typedef verdict (*law)(const glint_layout *a, const glint_layout *b, char why[256]);

uint64_t property_random(void); /* 64 random bits */
int64_t property_below(int64_t n);
void property_seed(uint64_t seed);

/* Sizes up to about max_size; strides compact in any order of modes, padded, broadcast, or arbitrary. */
void property_layout(int64_t max_size, glint_layout *l);

/* Runs the law on `cases` random pairs. Returns 1 if it never failed and held at least once in 20; otherwise 0, with the smallest
 * counterexample that shrinking found in a and b and the law's words in why. */
int property_check(law test, int cases, glint_layout *a, glint_layout *b, char why[256]);

#endif
