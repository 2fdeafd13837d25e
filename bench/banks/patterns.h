/* Access patterns on shared memory, each stated twice: as the byte address of every lane, for the GPU, and as a layout with an access, for
 * `glint layout banks`. A test compares the two statements and the counts of the tool and the simulator; banks.cu measures them.
 *
 * PATTERN(name, instruction, access name, bytes a lane, lanes, element bits, address of lane l in bytes, layout, tv or "") */
#ifdef PATTERN
PATTERN(row, LD32, "ld.32", 4, 32, 32, l * 4, "32:1", "")
PATTERN(column, LD32, "ld.32", 4, 32, 32, l * 128, "32:32", "")
PATTERN(column_padded, LD32, "ld.32", 4, 32, 32, l * 132, "32:33", "")
PATTERN(every_second, LD32, "ld.32", 4, 32, 32, l * 8, "32:2", "")
PATTERN(broadcast, LD32, "ld.32", 4, 32, 32, l * 0, "32:0", "")
PATTERN(two_rows, LD32, "ld.32", 4, 32, 32, l / 16 * 128, "((16,2)):((0,32))", "")
PATTERN(halves_row, LD16, "ld.16", 2, 32, 16, l * 2, "32:1", "")
PATTERN(pairs_row, LD64, "ld.64", 8, 32, 32, l * 8, "(32,2):(2,1)", "")
PATTERN(pairs_apart, LD64, "ld.64", 8, 32, 32, l * 16, "(32,2):(4,1)", "")
PATTERN(pairs_column, LD64, "ld.64", 8, 32, 32, l * 128, "(32,2):(32,1)", "")
PATTERN(quads_row, LD128, "ld.128", 16, 32, 32, l * 16, "(32,4):(4,1)", "")
PATTERN(quads_column, LD128, "ld.128", 16, 32, 32, l * 128, "(32,4):(32,1)", "")
PATTERN(quads_swizzled, LD128, "ld.128", 16, 32, 16, (l * 128) ^ (l % 8 * 16), "Sw<3,3,3> o 0 o (32,64):(64,1)", "(32,8):(1,32)")
PATTERN(store_column, ST32, "st.32", 4, 32, 32, l * 128, "32:32", "")
PATTERN(store_swizzled, ST32, "st.32", 4, 32, 32, (l * 128) ^ (l * 4), "Sw<5,0,5> o 0 o 32:32", "")
PATTERN(store_quads_column, ST128, "st.128", 16, 32, 32, l * 128, "(32,4):(32,1)", "")
PATTERN(ldmatrix_plain, LDSM4, "ldmatrix.x4", 16, 32, 16, l * 128, "(32,64):(64,1)", "32:1")
PATTERN(ldmatrix_swizzled, LDSM4, "ldmatrix.x4", 16, 32, 16, (l * 128) ^ (l % 8 * 16), "Sw<3,3,3> o 0 o (32,64):(64,1)", "32:1")
PATTERN(ldmatrix_padded, LDSM4, "ldmatrix.x4", 16, 32, 16, l * 144, "(32,64):(72,1)", "32:1")
PATTERN(ldmatrix_32_columns, LDSM4, "ldmatrix.x4", 16, 32, 16, (l * 64) ^ (l / 2 % 4 * 16), "Sw<2,3,3> o 0 o (32,32):(32,1)", "32:1")
PATTERN(stmatrix_swizzled, STSM4, "stmatrix.x4", 16, 32, 16, (l % 16 * 128 + l / 16 * 16) ^ (l % 8 * 16), "Sw<3,3,3> o 0 o (16,64):(64,1)",
        "((16,2)):((1,128))")
PATTERN(stmatrix_every_second_row, STSM4, "stmatrix.x4", 16, 32, 16,
        ((2 * (l % 8) + l / 8 % 2) * 128 + l / 16 * 16) ^ ((2 * (l % 8) + l / 8 % 2) % 8 * 16), "Sw<3,3,3> o 0 o (16,64):(64,1)",
        "((8,2,2)):((2,1,128))")
#endif
