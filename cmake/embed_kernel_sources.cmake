# Writes a C++ file that holds source files as strings, behind a function that gives them. Run at
# build time:
#   cmake -D SOURCE_DIR=kernel_sources -D NAMES=a.cu,primitives/b.cuh -D OUTPUT=embedded_sources.cpp
#         -D DECLARED_IN=compiler/embedded_sources.hpp -D NAMESPACE=backlight::compiler
#         -D FUNCTION=embedded_sources -P embed_kernel_sources.cmake

# Keeps quoted arguments and variables literal whatever they hold.
cmake_minimum_required(VERSION 3.25)

string(REPLACE "," ";" names "${NAMES}")
list(SORT names)

set(entries "")
foreach(name IN LISTS names)
    file(READ "${SOURCE_DIR}/${name}" text)
    # CMake reads CR LF as LF, and compilers do so too within a raw literal: what would not arrive
    # byte for byte is refused.
    file(SIZE "${SOURCE_DIR}/${name}" size)
    string(LENGTH "${text}" length)
    string(FIND "${text}" "\r" carriage_return)
    if(NOT length EQUAL size OR NOT carriage_return EQUAL -1)
        message(FATAL_ERROR "kernel source ${name}: lines must end with LF, without CR")
    endif()
    # A delimiter that the text does not hold keeps the literal valid for any content.
    set(delimiter "source")
    set(number 0)
    while(TRUE)
        string(FIND "${text}" ")${delimiter}\"" found)
        if(found EQUAL -1)
            break()
        endif()
        math(EXPR number "${number} + 1")
        set(delimiter "source${number}")
    endwhile()
    string(APPEND entries "    {\"${name}\"sv, R\"${delimiter}(${text})${delimiter}\"sv},\n")
endforeach()
list(LENGTH names count)

file(WRITE "${OUTPUT}" "// Written by cmake/embed_kernel_sources.cmake; do not edit.
#include \"${DECLARED_IN}\"

#include <array>

namespace ${NAMESPACE} {

namespace {

using namespace std::string_view_literals;

constexpr std::array<backlight::compiler::EmbeddedSource, ${count}> sources = {{
${entries}}};

}  // namespace

std::span<const backlight::compiler::EmbeddedSource> ${FUNCTION}() noexcept { return sources; }

}  // namespace ${NAMESPACE}
")
