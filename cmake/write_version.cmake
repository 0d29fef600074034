# Writes the C++ file that tells the version and the git revision. Run at every build:
#   cmake -D SOURCE_DIR=. -D VERSION=0.1.0 -D REVISION= -D OUTPUT=version.cpp -P write_version.cmake

cmake_minimum_required(VERSION 3.25)

set(revision "${REVISION}")
if(NOT revision)
    find_program(git git NO_CACHE)
    if(git)
        # Within another repository (a source package unpacked there, a vendored copy), `git
        # describe` would tell that repository's revision; the prefix is then not empty.
        execute_process(
            COMMAND "${git}" -C "${SOURCE_DIR}" rev-parse --show-prefix
            RESULT_VARIABLE result OUTPUT_VARIABLE prefix ERROR_QUIET
            OUTPUT_STRIP_TRAILING_WHITESPACE)
        if(result EQUAL 0 AND prefix STREQUAL "")
            execute_process(
                COMMAND "${git}" -C "${SOURCE_DIR}" describe --always --dirty
                OUTPUT_VARIABLE revision ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
        endif()
    endif()
endif()
if(NOT revision)
    set(revision "unknown")
endif()

set(text "// Written by cmake/write_version.cmake; do not edit.
#include \"version.hpp\"

#include \"backlight/backlight.h\"

static_assert(std::string_view(BACKLIGHT_VERSION_STRING) == \"${VERSION}\",
              \"backlight.h and CMakeLists.txt must have one version\");

namespace backlight {

std::string_view version() noexcept { return \"${VERSION}\"; }

std::string_view git_revision() noexcept { return \"${revision}\"; }

}  // namespace backlight
")

# Only on a change, so that nothing is compiled or linked again without need.
set(present "")
if(EXISTS "${OUTPUT}")
    file(READ "${OUTPUT}" present)
endif()
if(NOT present STREQUAL text)
    file(WRITE "${OUTPUT}" "${text}")
endif()
