# backlight_embed_sources(<output> FOLDER <folder> PATTERNS <pattern>... DECLARED_IN <header>
#                         NAMESPACE <namespace> FUNCTION <function>)
#
# A build rule for a C++ file that holds the folder's files as strings, made anew whenever one of them
# changes.
function(backlight_embed_sources output)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "FOLDER;DECLARED_IN;NAMESPACE;FUNCTION" "PATTERNS")
    list(TRANSFORM arg_PATTERNS PREPEND ${arg_FOLDER}/)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${arg_PATTERNS})
    set(names "")
    foreach(source IN LISTS sources)
        cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${arg_FOLDER} OUTPUT_VARIABLE name)
        list(APPEND names ${name})
    endforeach()
    list(JOIN names "," names)
    set(script ${PROJECT_SOURCE_DIR}/cmake/embed_kernel_sources.cmake)
    add_custom_command(
        OUTPUT ${output}
        COMMAND
            ${CMAKE_COMMAND} -D SOURCE_DIR=${arg_FOLDER} -D NAMES=${names} -D OUTPUT=${output} -D
            DECLARED_IN=${arg_DECLARED_IN} -D NAMESPACE=${arg_NAMESPACE} -D FUNCTION=${arg_FUNCTION} -P
            ${script}
        DEPENDS ${sources} ${script}
        COMMENT "Embedding ${arg_FOLDER}"
        VERBATIM)
endfunction()
