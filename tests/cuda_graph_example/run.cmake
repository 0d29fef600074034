# The test `cuda_graph_example`: install, build the example, run it in both ways.
cmake_minimum_required(VERSION 3.25)

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${EXAMPLE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCUDA_INCLUDE_DIR=${CUDA_INCLUDE_DIR})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --config ${CONFIG})

# No NVRTC: what is not embedded could not be compiled.
set(without_nvrtc ${CMAKE_COMMAND} -E env BACKLIGHT_NVRTC_PATH=/nonexistent/libnvrtc.so
                  --unset=BACKLIGHT_CACHE_LAYERS)
set(program ${WORK_DIR}/build/cuda_graph)
run(${without_nvrtc} ${program})

execute_process(
    COMMAND ${without_nvrtc} BACKLIGHT_DRIVER_PATH=${DRIVER} ${program}
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
message(STATUS "with the fake driver: ${output}")
if(NOT output MATCHES "captured a backward of [23] kernels" OR NOT output MATCHES "0 compiled"
   OR NOT output MATCHES "dV is not what it must be" OR NOT code EQUAL 1)
    message(FATAL_ERROR "the example does not run over the fake driver to its end")
endif()
