# The test `consumer_project`: install, look at what was installed, configure, build, run.
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/../support/installed_build.cmake)

# Over the fake driver, whatever the machine has.
function(run_example_in_c program)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env BACKLIGHT_DRIVER_PATH=${DRIVER}
                BACKLIGHT_CACHE_PATH=${WORK_DIR}/cache ${program}
        OUTPUT_VARIABLE output COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
    if(NOT output MATCHES "workspace on .*: [1-9][0-9]* bytes")
        message(FATAL_ERROR "${program} made no plan: ${output}")
    endif()
endfunction()

install_this_build()

# The public headers, all of them, and nothing else.
file(GLOB_RECURSE public RELATIVE ${HEADERS_DIR} ${HEADERS_DIR}/*)
file(GLOB_RECURSE installed RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT public STREQUAL installed)
    message(FATAL_ERROR "installed headers: ${installed}\npublic headers: ${public}")
endif()

build_against_it(${PROJECT_DIR} ${WORK_DIR}/build ${settings_in_cxx})
run(${WORK_DIR}/build/consumer_runtime)
run(${WORK_DIR}/build/consumer_shared)

# C: the example as its own project, within one that links either library, and by pkg-config.
set(settings -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_C_FLAGS=${CXX_FLAGS})
build_against_it(${EXAMPLE_DIR} ${WORK_DIR}/example ${settings})
run_example_in_c(${WORK_DIR}/example/backward)
build_against_it(${PROJECT_DIR}_in_c ${WORK_DIR}/build_in_c ${settings} -DEXAMPLE_DIR=${EXAMPLE_DIR})
run_example_in_c(${WORK_DIR}/build_in_c/with_runtime)
run_example_in_c(${WORK_DIR}/build_in_c/with_shared)

find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
    file(GLOB_RECURSE files ${prefix}/*/backlight.pc)
    cmake_path(GET files PARENT_PATH folder)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${folder} ${PKG_CONFIG} --cflags --libs backlight
        OUTPUT_VARIABLE options OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(options UNIX_COMMAND "${options} ${CXX_FLAGS}")
    cmake_path(GET folder PARENT_PATH folder)
    run(${C_COMPILER} ${EXAMPLE_DIR}/backward.c ${options} -Wl,-rpath,${folder} -o
        ${WORK_DIR}/by_pkg_config)
    run_example_in_c(${WORK_DIR}/by_pkg_config)
endif()

# docs/using_from_c.md shows the example as it is.
file(READ ${EXAMPLE_DIR}/backward.c example)
file(READ ${DOCUMENT} document)
string(FIND "${document}" "```c\n${example}```" position)
if(position EQUAL -1)
    message(FATAL_ERROR "${DOCUMENT} does not show ${EXAMPLE_DIR}/backward.c as it is")
endif()
