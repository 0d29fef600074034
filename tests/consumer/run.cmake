# The test `consumer_project`: install, look at what was installed, configure, build, run.
cmake_minimum_required(VERSION 3.25)

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

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

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${prefix})

# The public headers, all of them, and nothing else.
file(GLOB_RECURSE public RELATIVE ${HEADERS_DIR} ${HEADERS_DIR}/*)
file(GLOB_RECURSE installed RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT public STREQUAL installed)
    message(FATAL_ERROR "installed headers: ${installed}\npublic headers: ${public}")
endif()

run(${CMAKE_COMMAND} -S ${PROJECT_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_CXX_FLAGS=${CXX_FLAGS})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --config ${CONFIG})
run(${WORK_DIR}/build/consumer_runtime)
run(${WORK_DIR}/build/consumer_shared)

# C: the example as its own project, within one that links either library, and by pkg-config.
set(settings -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=${CONFIG}
             -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_C_FLAGS=${CXX_FLAGS})
run(${CMAKE_COMMAND} -S ${EXAMPLE_DIR} -B ${WORK_DIR}/example ${settings})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/example --config ${CONFIG})
run_example_in_c(${WORK_DIR}/example/backward)
run(${CMAKE_COMMAND} -S ${PROJECT_DIR}_in_c -B ${WORK_DIR}/build_in_c ${settings}
    -DEXAMPLE_DIR=${EXAMPLE_DIR})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build_in_c --config ${CONFIG})
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
