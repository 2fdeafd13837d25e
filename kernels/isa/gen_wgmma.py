#!/usr/bin/env python3
"""Writes wgmma_operands.h: for each width N of wgmma.m64nN the text of its accumulator registers, their constraints, and the
numbers of the operands that follow. C's preprocessor cannot count, so this is the one generated header. Run by hand:
python3 gen_wgmma.py > wgmma_operands.h"""
print("// Written by gen_wgmma.py: pieces of the wgmma wrappers in sm90.h for each N. WGMMA_D_N: the N/2 accumulator registers;")
print("// WGMMA_OUT_N(d): their constraints; WGMMA_P_N_i: the i-th operand after them.")
print("#ifndef GLINT_ISA_WGMMA_OPERANDS_H\n#define GLINT_ISA_WGMMA_OPERANDS_H\n// clang-format off")
for n in range(8, 257, 8):
    regs = n // 2
    print(f'#define WGMMA_D_{n} "{{' + ",".join(f"%{i}" for i in range(regs)) + '}"')
    print(f"#define WGMMA_OUT_{n}(d) " + ",".join(f'"+f"((d)[{i}])' for i in range(regs)))
    for i in range(6):
        print(f'#define WGMMA_P_{n}_{i} "%{regs + i}"')
print("// clang-format on\n#endif")
