/* Atoms: which thread of an instruction holds which element, as layouts (thread, value) -> offset in the operand's tile. For matrix
 * instructions the tile is column-major, (M,K) for A, (N,K) for B, (M,N) for C, as CuTe writes them; for memory instructions the domain is
 * named with the atom. Sources: PTX manual, "Matrix fragments for mma", "Register fragments for wgmma", "ldmatrix", "stmatrix". */
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct atom {
  const char *instruction, *operand, *domain;
  int32_t element_bits;
  const char *tv;
} atom;

static const atom atoms[] = {
    {"mma.m16n8k8", "A", "(M,K) = (16,8)", 16, "((4,8),(2,2)):((32,1),(16,8))"},
    {"mma.m16n8k8", "B", "(N,K) = (8,8)", 16, "((4,8),2):((16,1),8)"},
    {"mma.m16n8k8", "C", "(M,N) = (16,8)", 32, "((4,8),(2,2)):((32,1),(16,8))"},
    {"mma.m16n8k16", "A", "(M,K) = (16,16)", 16, "((4,8),(2,2,2)):((32,1),(16,8,128))"},
    {"mma.m16n8k16", "B", "(N,K) = (8,16)", 16, "((4,8),(2,2)):((16,1),(8,64))"},
    {"mma.m16n8k16", "C", "(M,N) = (16,8)", 32, "((4,8),(2,2)):((32,1),(16,8))"},
    {"mma.m16n8k8.tf32", "A", "(M,K) = (16,8)", 32, "((4,8),(2,2)):((16,1),(8,64))"},
    {"mma.m16n8k8.tf32", "B", "(N,K) = (8,8)", 32, "((4,8),2):((8,1),32)"},
    {"mma.m16n8k8.tf32", "C", "(M,N) = (16,8)", 32, "((4,8),(2,2)):((32,1),(16,8))"},
    {"mma.m16n8k32", "A", "(M,K) = (16,32)", 8, "((4,8),(4,2,2)):((64,1),(16,8,256))"},
    {"mma.m16n8k32", "B", "(N,K) = (8,32)", 8, "((4,8),(4,2)):((32,1),(8,128))"},
    {"mma.m16n8k32", "C", "(M,N) = (16,8)", 32, "((4,8),(2,2)):((32,1),(16,8))"},
    {"ldmatrix.x1", "address", "matrix elements, row by row", 16, "(8,8):(8,1)"},
    {"ldmatrix.x1", "register", "matrix elements, row by row", 16, "(32,2):(2,1)"},
    {"ldmatrix.x1.trans", "address", "matrix elements, row by row", 16, "(8,8):(8,1)"},
    {"ldmatrix.x1.trans", "register", "matrix elements, row by row", 16, "((4,8),2):((16,1),8)"},
    {"ldmatrix.x2", "address", "2 matrices, row by row", 16, "(16,8):(8,1)"},
    {"ldmatrix.x2", "register", "2 matrices, row by row", 16, "(32,(2,2)):(2,(1,64))"},
    {"ldmatrix.x2.trans", "address", "2 matrices, row by row", 16, "(16,8):(8,1)"},
    {"ldmatrix.x2.trans", "register", "2 matrices, row by row", 16, "((4,8),(2,2)):((16,1),(8,64))"},
    {"ldmatrix.x4", "address", "4 matrices, row by row", 16, "(32,8):(8,1)"},
    {"ldmatrix.x4", "register", "4 matrices, row by row", 16, "(32,(2,4)):(2,(1,64))"},
    {"ldmatrix.x4.trans", "address", "4 matrices, row by row", 16, "(32,8):(8,1)"},
    {"ldmatrix.x4.trans", "register", "4 matrices, row by row", 16, "((4,8),(2,4)):((16,1),(8,64))"},
    {"cp.async.4", "address", "bytes of the warp", 8, "(32,4):(4,1)"},
    {"cp.async.8", "address", "bytes of the warp", 8, "(32,8):(8,1)"},
    {"cp.async.16", "address", "bytes of the warp", 8, "(32,16):(16,1)"},
    {"ld.32", "address", "bytes of the warp", 8, "(32,4):(4,1)"},
    {"ld.64", "address", "bytes of the warp", 8, "(32,8):(8,1)"},
    {"ld.128", "address", "bytes of the warp", 8, "(32,16):(16,1)"},
};

/* wgmma: A from registers, 64 rows, and the accumulator of 64 x N: the mma fragment, 4 warps of 16 rows. */
static const atom wgmma_atoms[] = {
    {"k8", "A", "(M,K) = (64,8)", 32, "((4,8,4),(2,2)):((64,1,16),(8,256))"},
    {"k16", "A", "(M,K) = (64,16)", 16, "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))"},
    {"k32", "A", "(M,K) = (64,32)", 8, "((4,8,4),(4,2,2)):((256,1,16),(64,8,1024))"},
};

static const int32_t atom_count = (int32_t)(sizeof atoms / sizeof *atoms);

static glint_status fill(const char *instruction, const char *operand, const char *domain, int32_t bits, const char *tv,
                         glint_layout_atom_info *info, glint_layout_error *error) {
  glint_status status = glint_layout_parse(tv, &info->tv, error);
  if (status) return status;
  snprintf(info->instruction, sizeof info->instruction, "%s", instruction);
  snprintf(info->operand, sizeof info->operand, "%s", operand);
  snprintf(info->domain, sizeof info->domain, "%s", domain);
  info->element_bits = bits;
  return GLINT_OK;
}

/* k: index into wgmma_atoms; operand 0 A, 1 C. */
static glint_status fill_wgmma(int32_t n, int32_t k, int32_t operand, glint_layout_atom_info *info, glint_layout_error *error) {
  char name[32], domain[64], tv[96];
  const atom *a = &wgmma_atoms[k];
  snprintf(name, sizeof name, "wgmma.m64n%d%s", n, a->instruction);
  if (operand == 0) return fill(name, "A", a->domain, a->element_bits, a->tv, info, error);
  snprintf(domain, sizeof domain, "(M,N) = (64,%d)", n);
  snprintf(tv, sizeof tv, "((4,8,4),(2,2,%d)):((128,1,16),(64,8,512))", n / 8);
  return fill(name, "C", domain, 32, tv, info, error);
}

int32_t glint_layout_atom_count(void) { return atom_count + 6; }

glint_status glint_layout_atom_at(int32_t i, glint_layout_atom_info *info, glint_layout_error *error) {
  if (i < 0 || i >= glint_layout_atom_count())
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "atom is %d, expected 0 to %d", i, glint_layout_atom_count() - 1);
  if (i >= atom_count) return fill_wgmma(64, (i - atom_count) / 2, (i - atom_count) % 2, info, error);
  const atom *a = &atoms[i];
  return fill(a->instruction, a->operand, a->domain, a->element_bits, a->tv, info, error);
}

/* Stores have the lane maps of the loads. */
static void canonical_name(const char *instruction, char *name, size_t size) {
  if (strncmp(instruction, "stmatrix", 8) == 0)
    snprintf(name, size, "ldmatrix%s", instruction + 8);
  else if (strncmp(instruction, "st.", 3) == 0)
    snprintf(name, size, "ld.%s", instruction + 3);
  else
    snprintf(name, size, "%s", instruction);
}

static glint_status find_wgmma(const char *instruction, const char *operand, glint_layout_atom_info *info, glint_layout_error *error) {
  char *end;
  long n = strtol(instruction + strlen("wgmma.m64n"), &end, 10);
  if (n < 8 || n > 256 || n % 8 != 0)
    return layout_fail(error, GLINT_ERROR_INVALID_ARGUMENT, "%s: N is %ld, expected a multiple of 8 from 8 to 256", instruction, n);
  for (int32_t k = 0; k < (int32_t)(sizeof wgmma_atoms / sizeof *wgmma_atoms); k++) {
    if (strcmp(end, wgmma_atoms[k].instruction) != 0) continue;
    if (!operand || strcmp(operand, "A") == 0) return fill_wgmma((int32_t)n, k, 0, info, error);
    if (strcmp(operand, "C") == 0) return fill_wgmma((int32_t)n, k, 1, info, error);
    return layout_fail(error, GLINT_ERROR_NOT_FOUND, "wgmma has operands A (from registers) and C; %s is read from shared memory", operand);
  }
  return layout_fail(error, GLINT_ERROR_NOT_FOUND, "no atom %s: wgmma has k8 (tf32), k16 (16-bit) and k32 (8-bit)", instruction);
}

glint_status glint_layout_atom(const char *instruction, const char *operand, glint_layout_atom_info *info, glint_layout_error *error) {
  char name[32];
  if (strncmp(instruction, "wgmma.m64n", 10) == 0) return find_wgmma(instruction, operand, info, error);
  canonical_name(instruction, name, sizeof name);
  for (int32_t i = 0; i < atom_count; i++) {
    const atom *a = &atoms[i];
    if (strcmp(a->instruction, name) == 0 && (!operand || strcmp(a->operand, operand) == 0))
      return fill(instruction, a->operand, a->domain, a->element_bits, a->tv, info, error);
  }
  return layout_fail(error, GLINT_ERROR_NOT_FOUND, "no atom %.40s%s%.20s", instruction, operand ? " with operand " : "",
                     operand ? operand : "");
}
