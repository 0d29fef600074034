# The libraries that Backlight is built with: what is installed, or, with BACKLIGHT_FETCH_DEPENDENCIES,
# released sources of what is not, each pinned by its commit.
find_package(CudaHeaders 12.0 REQUIRED)
find_package(Threads REQUIRED)

# The command brings the emulated device, which needs Boost.Context. Of the libraries it is the only
# one that has no small source of its own: a wheel is made without the command where it is missing.
if(SKBUILD)
    set(Boost_USE_STATIC_LIBS ON)
    find_package(Boost 1.71 QUIET COMPONENTS context)
    if(NOT Boost_context_FOUND)
        message(WARNING "No Boost.Context (Debian: libboost-context-dev): the package is built without "
                        "the command `backlight`")
        set(BACKLIGHT_BUILD_TOOLS OFF)
    endif()
endif()

if(BACKLIGHT_FETCH_DEPENDENCIES)
    include(FetchContent)
    # The same arguments say which installed version will do and what is fetched in its place.
    FetchContent_Declare(
        fmt
        GIT_REPOSITORY https://github.com/fmtlib/fmt.git
        GIT_TAG e69e5f977d458f2650bb346dadf2ad30c5320281 # 10.2.1
        FIND_PACKAGE_ARGS CONFIG)
    set(SPDLOG_FMT_EXTERNAL ON CACHE BOOL "Use the fmt above")
    FetchContent_Declare(
        spdlog
        GIT_REPOSITORY https://github.com/gabime/spdlog.git
        GIT_TAG 7c02e204c92545f869e2f04edaab1f19fe8b19fd # 1.13.0
        FIND_PACKAGE_ARGS CONFIG)
    FetchContent_Declare(
        nlohmann_json
        GIT_REPOSITORY https://github.com/nlohmann/json.git
        GIT_TAG 9cca280a4d0ccf0c08f47a99aa71d1b0e52f8d03 # 3.11.3
        FIND_PACKAGE_ARGS 3.9 CONFIG)
    FetchContent_Declare(
        CLI11
        GIT_REPOSITORY https://github.com/CLIUtils/CLI11.git
        GIT_TAG 6c7b07a878ad834957b98d0f9ce1dbe0cb204fc9 # 2.4.2
        FIND_PACKAGE_ARGS CONFIG)
    FetchContent_MakeAvailable(fmt spdlog nlohmann_json)
    if(BACKLIGHT_BUILD_TOOLS OR BACKLIGHT_BUILD_TESTS)
        FetchContent_MakeAvailable(CLI11)
    endif()
    find_path(XXHASH_INCLUDE_DIR xxhash.h)
    if(NOT XXHASH_INCLUDE_DIR)
        # Its header alone is used.
        FetchContent_Declare(
            xxhash
            GIT_REPOSITORY https://github.com/Cyan4973/xxHash.git
            GIT_TAG bbb27a5efb85b92a0486cf361a8635715a53f6ba # 0.8.2
            SOURCE_SUBDIR none)
        FetchContent_MakeAvailable(xxhash)
        set(XXHASH_INCLUDE_DIR ${xxhash_SOURCE_DIR})
    endif()
else()
    find_package(fmt REQUIRED CONFIG)
    find_package(spdlog REQUIRED CONFIG)
    find_package(nlohmann_json 3.9 REQUIRED CONFIG)
endif()

# A wheel must not need the shared libraries of the machine it was built on: there fmt and spdlog are
# compiled in, from their headers.
if(SKBUILD)
    add_library(backlight_logging_libraries INTERFACE)
    foreach(library spdlog::spdlog_header_only fmt::fmt-header-only)
        get_target_property(directories ${library} INTERFACE_INCLUDE_DIRECTORIES)
        target_include_directories(backlight_logging_libraries SYSTEM INTERFACE ${directories})
    endforeach()
    target_compile_definitions(backlight_logging_libraries INTERFACE FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
    target_link_libraries(backlight_logging_libraries INTERFACE Threads::Threads)
    set(backlight_logging_libraries backlight_logging_libraries)
else()
    set(backlight_logging_libraries spdlog::spdlog fmt::fmt)
endif()
