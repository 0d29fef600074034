# The test `embedded_kernels_arguments`: what backlight_embed_kernels takes and what it refuses, with
# blanks in every path.
cmake_minimum_required(VERSION 3.25)

set(source "${WORK_DIR}/a project")
file(REMOVE_RECURSE ${WORK_DIR})
file(COPY ${PROJECT_DIR}/ DESTINATION ${source})

function(configure calls result output)
    execute_process(
        COMMAND
            ${CMAKE_COMMAND} -S ${source} -B ${WORK_DIR}/${calls} -G ${GENERATOR} -DCALLS=${calls}
            -DMODULE=${MODULE} -DBACKLIGHT_COMMAND=${COMMAND} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
            -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
        RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text COMMAND_ECHO STDOUT)
    # CMake breaks the lines of a message.
    string(REGEX REPLACE "[ \n]+" " " text "${text}")
    set(${result} ${code} PARENT_SCOPE)
    set(${output} "${text}" PARENT_SCOPE)
endfunction()

function(check_refused calls reason)
    configure(${calls} code output)
    if(code EQUAL 0 OR NOT output MATCHES "backlight_embed_kernels: ${reason}")
        message(FATAL_ERROR "'${calls}' is not refused with '${reason}': ${output}")
    endif()
endfunction()

check_refused("one name twice" "target 'engine' already has kernels called 'backlight_kernels'")
check_refused("no problems" "PROBLEMS must be a manifest or shapes")
check_refused("no target" "there is no target 'motor'")

configure("two names" code output)
if(NOT code EQUAL 0)
    message(FATAL_ERROR "two calls with a name each are refused: ${output}")
endif()
set(build "${WORK_DIR}/two names")
execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${build}/engine COMMAND_ERROR_IS_FATAL ANY)
