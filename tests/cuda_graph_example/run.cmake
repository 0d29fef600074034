# The test `cuda_graph_example`: install, build the example, run it in both ways.
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/../support/installed_build.cmake)

install_this_build()
build_against_it(${EXAMPLE_DIR} ${WORK_DIR}/build ${settings_in_cxx} -DCUDA_INCLUDE_DIR=${CUDA_INCLUDE_DIR})

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
