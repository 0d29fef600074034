# The test `embedded_kernels`: build the example in both ways, and run it.
cmake_minimum_required(VERSION 3.25)

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

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

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${EXAMPLE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_CXX_FLAGS=${CXX_FLAGS})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --config ${CONFIG})
run_example(${WORK_DIR}/build/embedded_kernels)
