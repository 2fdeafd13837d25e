# The build's check of kernels (kernels/compile.cmake) passes a kernel within its budget, and stops one beyond it and one that spills.
# cmake -DNVCC= -DCOMPILE= -DKERNELS= -DFOLDER= -P test_compile.cmake
file(MAKE_DIRECTORY ${FOLDER})
set(source ${FOLDER}/many_registers.c)
# VALUES floats that live across a loop
file(WRITE ${source} "#include \"isa/common.h\"
typedef struct one { float *x; } one;
KERNEL(many_registers, 128, one) {
  float v[VALUES];
  UNROLL for (int i = 0; i < VALUES; i++) v[i] = gmem_load_f32(p.x + i);
  NO_UNROLL for (int n = 0; n < 100; n++) UNROLL for (int i = 0; i < VALUES; i++) v[i] = fma_f32(v[i], v[(i + 1) % VALUES], 1.f);
  UNROLL for (int i = 0; i < VALUES; i++) gmem_store_f32(p.x + i, v[i]);
}
")

# sets result and output
function(compile budget values)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -DNVCC=${NVCC} "-DGENCODE=-gencode=arch=compute_80,code=sm_80;-DVALUES=${values}" -DSOURCE=${source}
            -DOUTPUT=${FOLDER}/out.fatbin -DINCLUDE=${KERNELS} -DREGISTERS=${budget} -P ${COMPILE}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(result ${result} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

compile(255 96)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "refused within its budget:\n${output}")
endif()
file(READ ${FOLDER}/out.fatbin.registers used)
if(used LESS 96 OR used GREATER 255)
  message(FATAL_ERROR "counted ${used} registers")
endif()
compile(64 96)
if(result EQUAL 0 OR NOT output MATCHES "registers, budget 64")
  message(FATAL_ERROR "not refused beyond its budget:\n${output}")
endif()
compile(255 400)
if(result EQUAL 0 OR NOT output MATCHES "bytes spill stores")
  message(FATAL_ERROR "spills were not refused:\n${output}")
endif()
