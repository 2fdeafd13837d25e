// Tensor maps: the arguments of cuTensorMapEncodeTiled, with the limits that the driver API's manual states, packed into the 128 bytes in a
// form of the simulator's own.
#include "model.h"
#include <string.h>

enum { MAGIC = 0x54, TYPES = 16 };
_Static_assert(sizeof(tensor_map_fields) <= sizeof(tensor_map), "the fields fit the opaque bytes");
// by CUtensorMapDataType: u8 u16 u32 s32 u64 s64 f16 f32 f64 bf16 f32_ftz tf32 tf32_ftz
static const u8 element_bytes[TYPES] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

const char *sim_tensor_map_encode(tensor_map *map, int data_type, u32 rank, void *base, const u64 *dims, const u64 *strides_bytes,
                                  const u32 *box, const u32 *element_strides, int interleave, int swizzle, int l2_promotion, int oob_fill) {
  (void)l2_promotion;
  if (data_type < 0 || data_type >= TYPES || !element_bytes[data_type]) return "data type is unknown";
  if (rank < 1 || rank > 5) return "rank is not 1..5";
  if (interleave) return "interleaved layouts are not modelled";
  if (swizzle < 0 || swizzle > 3) return "swizzle is not none, 32, 64 or 128 bytes";
  if (oob_fill < 0 || oob_fill > 1) return "out-of-bounds fill is unknown";
  if (!base || (uintptr_t)base % 16) return "global address is not a multiple of 16";
  tensor_map_fields f = {.base = base,
                         .rank = (u8)rank,
                         .data_type = (u8)data_type,
                         .element_bytes = element_bytes[data_type],
                         .swizzle = (u8)swizzle,
                         .nan_fill = (u8)oob_fill,
                         .magic = MAGIC};
  for (u32 i = 0; i < 5; i++) {
    f.box[i] = f.element_strides[i] = 1;
    if (i >= rank) continue;
    if (dims[i] == 0 || dims[i] > (1ull << 32)) return "a dimension is not 1..2^32";
    if (box[i] == 0 || box[i] > 256) return "a box dimension is not 1..256";
    if (element_strides[i] == 0 || element_strides[i] > 8) return "an element stride is not 1..8";
    if (i && (strides_bytes[i - 1] % 16 || strides_bytes[i - 1] >= 1ull << 40)) return "a stride is not a multiple of 16 below 2^40";
    f.dims_less_1[i] = (u32)(dims[i] - 1);
    f.box[i] = (u16)box[i];
    f.element_strides[i] = (u8)element_strides[i];
    if (i) f.strides[i - 1] = strides_bytes[i - 1];
  }
  u32 inner = box[0] * f.element_bytes;
  if (inner % 16) return "the box's inner dimension is not a multiple of 16 bytes";
  if (swizzle && inner > 16u << swizzle) return "the box's inner dimension is wider than the swizzle";
  memset(map, 0, sizeof *map);
  memcpy(map, &f, sizeof f);
  return NULL;
}
