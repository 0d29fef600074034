# Finds cuda.h and nvrtc.h. Nothing of CUDA is linked: the driver and NVRTC are opened at run time.
#
# Looked in, in this order: BACKLIGHT_CUDA_INCLUDE_DIR (variable, then environment), the toolkit of
# CUDA_HOME, CUDA_PATH, of nvcc on the PATH, the usual places of toolkits, the Python wheels that
# tools/dependencies.sh unpacks into .deps, and, where a Python package is built, those of its build
# environment. The two headers may lie in different directories, as
# they do in wheels of separate packages.
#
# Defines the target CudaHeaders::CudaHeaders and CudaHeaders_VERSION.

set(_cuda_include_dirs ${BACKLIGHT_CUDA_INCLUDE_DIR} $ENV{BACKLIGHT_CUDA_INCLUDE_DIR})
set(_cuda_roots "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}")
find_program(_cuda_nvcc nvcc NO_CACHE)
if(_cuda_nvcc)
    # nvcc may be a link from a directory of links into the toolkit.
    file(REAL_PATH "${_cuda_nvcc}" _cuda_nvcc)
    cmake_path(GET _cuda_nvcc PARENT_PATH _cuda_bin)
    cmake_path(GET _cuda_bin PARENT_PATH _cuda_root)
    list(APPEND _cuda_roots "${_cuda_root}")
endif()
list(APPEND _cuda_roots /usr/local/cuda /opt/cuda)
foreach(_cuda_root IN LISTS _cuda_roots)
    if(_cuda_root)
        file(GLOB _cuda_target_dirs "${_cuda_root}/targets/*/include")
        list(APPEND _cuda_include_dirs "${_cuda_root}/include" ${_cuda_target_dirs})
    endif()
endforeach()
file(GLOB _cuda_wheel_dirs "${PROJECT_SOURCE_DIR}/.deps/*/nvidia/*/include")
list(APPEND _cuda_include_dirs ${_cuda_wheel_dirs})
if(SKBUILD)
    execute_process(
        COMMAND "${Python_EXECUTABLE}" -c "import nvidia; print(*nvidia.__path__, sep=';')"
        OUTPUT_VARIABLE _cuda_namespace OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    foreach(_cuda_root IN LISTS _cuda_namespace)
        file(GLOB _cuda_wheel_dirs "${_cuda_root}/*/include")
        list(APPEND _cuda_include_dirs ${_cuda_wheel_dirs})
    endforeach()
endif()

# Not kept in the CMake cache, so that another toolkit or hint counts at the next configuration.
find_path(CudaHeaders_CUDA_DIR cuda.h HINTS ${_cuda_include_dirs} NO_DEFAULT_PATH NO_CACHE)
find_path(CudaHeaders_NVRTC_DIR nvrtc.h HINTS ${_cuda_include_dirs} NO_DEFAULT_PATH NO_CACHE)

if(CudaHeaders_CUDA_DIR)
    file(STRINGS "${CudaHeaders_CUDA_DIR}/cuda.h" _cuda_version
         REGEX "^#define CUDA_VERSION [0-9]+" LIMIT_COUNT 1)
    if(_cuda_version MATCHES "([0-9]+)$")
        math(EXPR _cuda_major "${CMAKE_MATCH_1} / 1000")
        math(EXPR _cuda_minor "${CMAKE_MATCH_1} % 1000 / 10")
        set(CudaHeaders_VERSION "${_cuda_major}.${_cuda_minor}")
    endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
    CudaHeaders
    REQUIRED_VARS CudaHeaders_CUDA_DIR CudaHeaders_NVRTC_DIR
    VERSION_VAR CudaHeaders_VERSION
    REASON_FAILURE_MESSAGE
        "cuda.h and nvrtc.h are needed to build: run tools/dependencies.sh, install a CUDA toolkit, or set BACKLIGHT_CUDA_INCLUDE_DIR")

if(CudaHeaders_FOUND AND NOT TARGET CudaHeaders::CudaHeaders)
    add_library(CudaHeaders::CudaHeaders INTERFACE IMPORTED)
    target_include_directories(CudaHeaders::CudaHeaders
                               INTERFACE "${CudaHeaders_CUDA_DIR}" "${CudaHeaders_NVRTC_DIR}")
endif()
