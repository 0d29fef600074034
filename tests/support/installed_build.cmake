# For scripts that build against what this build installs: its prefix, in a WORK_DIR that begins empty.
set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(install_this_build)
    run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${prefix})
endfunction()

# build_against_it(<project> <build folder> [options of CMake]...)
function(build_against_it project folder)
    run(${CMAKE_COMMAND} -S ${project} -B ${folder} -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
        -DCMAKE_BUILD_TYPE=${CONFIG} ${ARGN})
    run(${CMAKE_COMMAND} --build ${folder} --config ${CONFIG})
endfunction()

set(settings_in_cxx -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CXX_FLAGS})
