# backlight_embed_kernels(<target> PROBLEMS <manifest.json | shape...>
#                         [TARGETS <sm_90a...>] [KERNELS <preset...>] [DTYPES <bf16 fp16>]
#                         [CAUSAL] [FULL] [BAKE_SEQLEN] [NAME <name>] [JOBS <n>])
#
# Compiles the kernels of those problems when <target> is built, and links them into it as one pack,
# so that it needs no NVRTC at run time. PROBLEMS is the path of a manifest (docs/prebuilding.md), or
# shapes batch_heads_seqlen_headdim with CAUSAL, FULL (both where neither is given) and DTYPES (both
# by default). What is left out of TARGETS and KERNELS is as for `backlight prebuild`.
#
# The target gets a header <name>.hpp (by default backlight_kernels.hpp) with
#
#     std::span<const std::byte> <name>();
#
# for the `pack` of a backlight::CacheLayer. Building needs NVRTC (BACKLIGHT_NVRTC_PATH in the
# environment where the loader does not find it), no GPU and no driver. BACKLIGHT_COMMAND, a cache
# variable, is the command to use in place of this package's, for cross-compilation.
function(backlight_embed_kernels target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "CAUSAL;FULL;BAKE_SEQLEN" "NAME;JOBS"
                          "PROBLEMS;TARGETS;KERNELS;DTYPES")
    if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
        message(FATAL_ERROR "backlight_embed_kernels: not understood: "
                            "${arg_UNPARSED_ARGUMENTS}${arg_KEYWORDS_MISSING_VALUES}")
    endif()
    if(NOT TARGET ${target})
        message(FATAL_ERROR "backlight_embed_kernels: there is no target '${target}'")
    endif()
    if(NOT arg_PROBLEMS)
        message(FATAL_ERROR "backlight_embed_kernels: PROBLEMS must be a manifest or shapes")
    endif()
    set(name backlight_kernels)
    if(arg_NAME)
        set(name ${arg_NAME})
    endif()
    if(NOT name MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
        message(FATAL_ERROR "backlight_embed_kernels: NAME is '${name}': it must be an identifier")
    endif()

    # A second call would write the same files, and its kernels would be lost.
    get_target_property(embedded ${target} BACKLIGHT_EMBEDDED_KERNELS)
    if(name IN_LIST embedded)
        message(FATAL_ERROR "backlight_embed_kernels: target '${target}' already has kernels called "
                            "'${name}': give each call a NAME of its own, or all problems to one")
    endif()
    set_property(TARGET ${target} APPEND PROPERTY BACKLIGHT_EMBEDDED_KERNELS ${name})

    set(command_dependency "")
    if(BACKLIGHT_COMMAND)
        set(command ${BACKLIGHT_COMMAND})
    elseif(TARGET backlight::command)
        set(command $<TARGET_FILE:backlight::command>)
        set(command_dependency backlight::command)
    else()
        message(FATAL_ERROR "backlight_embed_kernels: there is no command `backlight`: build Backlight "
                            "with BACKLIGHT_BUILD_TOOLS=ON, or set BACKLIGHT_COMMAND")
    endif()

    set(options "")
    set(manifest "")
    if(arg_PROBLEMS MATCHES "\\.json$")
        list(LENGTH arg_PROBLEMS count)
        if(count GREATER 1 OR arg_CAUSAL OR arg_FULL OR arg_DTYPES)
            message(FATAL_ERROR "backlight_embed_kernels: beside a manifest there can be no shapes, "
                                "CAUSAL, FULL or DTYPES: its entries tell them")
        endif()
        cmake_path(ABSOLUTE_PATH arg_PROBLEMS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
                   OUTPUT_VARIABLE manifest)
        list(APPEND options --manifest ${manifest})
    else()
        foreach(shape IN LISTS arg_PROBLEMS)
            list(APPEND options --shape ${shape})
        endforeach()
        foreach(dtype IN LISTS arg_DTYPES)
            list(APPEND options --dtype ${dtype})
        endforeach()
        if(arg_CAUSAL)
            list(APPEND options --causal)
        endif()
        if(arg_FULL)
            list(APPEND options --full)
        endif()
    endif()
    foreach(architecture IN LISTS arg_TARGETS)
        list(APPEND options --target ${architecture})
    endforeach()
    foreach(kernel IN LISTS arg_KERNELS)
        list(APPEND options --kernel ${kernel})
    endforeach()
    if(arg_BAKE_SEQLEN)
        list(APPEND options --bake-seqlen)
    endif()
    if(arg_JOBS)
        list(APPEND options --jobs ${arg_JOBS})
    endif()

    set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}_${name})
    set(pack ${folder}/${name}.pack)
    add_custom_command(
        OUTPUT ${pack}
        # The cache makes a second build compile only what has changed.
        COMMAND ${command} prebuild ${options} --cache ${folder}/cache --pack ${pack}
        DEPENDS ${manifest} ${command_dependency}
        COMMENT "Prebuilding the attention kernels of ${target}"
        USES_TERMINAL VERBATIM)

    file(CONFIGURE OUTPUT ${folder}/${name}.hpp CONTENT [=[
#pragma once

#include <cstddef>
#include <span>

/// A pack of compiled kernels, for the `pack` of a backlight::CacheLayer.
std::span<const std::byte> @name@();
]=] @ONLY)
    # The assembler takes the bytes as they are: a C++ array of them would take the compiler minutes.
    file(CONFIGURE OUTPUT ${folder}/${name}.cpp CONTENT [=[
#include "@name@.hpp"

asm(R"(
    .pushsection .rodata
    .balign 64
    .hidden @name@_pack_begin
    .globl @name@_pack_begin
@name@_pack_begin:
    .incbin "@pack@"
    .hidden @name@_pack_end
    .globl @name@_pack_end
@name@_pack_end:
    .byte 0
    .popsection
)");

extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte @name@_pack_begin[];
[[gnu::visibility("hidden")]] extern const std::byte @name@_pack_end[];
}

std::span<const std::byte> @name@() {
    return {@name@_pack_begin, @name@_pack_end};
}
]=] @ONLY)
    # Link-time optimisation does not see the symbols of assembler text.
    set_source_files_properties(${folder}/${name}.cpp PROPERTIES OBJECT_DEPENDS ${pack} COMPILE_OPTIONS
                                                                                        -fno-lto)
    target_sources(${target} PRIVATE ${folder}/${name}.cpp ${pack})
    target_include_directories(${target} PRIVATE ${folder})
    target_compile_features(${target} PRIVATE cxx_std_20)
endfunction()
