# The test `embedded_kernels`: build the example in both ways, and run it.
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/../support/installed_build.cmake)

# The example finds its kernels in itself, or ends with an error: its policy forbids to compile.
function(run_example program)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env BACKLIGHT_DRIVER_PATH=${DRIVER}
                BACKLIGHT_NVRTC_PATH=/nonexistent/libnvrtc.so --unset=BACKLIGHT_CACHE_LAYERS ${program}
        OUTPUT_VARIABLE output COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS "${output}")
    foreach(kernel IN ITEMS delta wgmma)
        if(NOT output MATCHES "attention_backward_${kernel} for sm_90a: embedded")
            message(FATAL_ERROR "the ${kernel} kernel is not an embedded one")
        endif()
    endforeach()
endfunction()

run(${CMAKE_COMMAND} --build ${BUILD_DIR} --config ${CONFIG} --target embedded_kernels_example)
run_example(${EXAMPLE})

install_this_build()
build_against_it(${EXAMPLE_DIR} ${WORK_DIR}/build ${settings_in_cxx})
run_example(${WORK_DIR}/build/embedded_kernels)
