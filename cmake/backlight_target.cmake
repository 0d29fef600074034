# What every target of the project has in common.
function(backlight_target_defaults target)
    target_compile_features(${target} PUBLIC cxx_std_20)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
    target_compile_options(
        ${target}
        PRIVATE -Wall
                -Wextra
                -Wshadow
                -Wconversion
                # Designated initialisers leave out what keeps its default.
                -Wno-missing-field-initializers
                # Warns of std::string's own operator+ in GCC 12 (GCC bug 105651).
                $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                $<$<BOOL:${BACKLIGHT_WARNINGS_AS_ERRORS}>:-Werror>)
endfunction()

# Only what is marked with BACKLIGHT_API is seen outside of a shared library that holds the target.
function(backlight_hide_symbols target)
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden
                                               VISIBILITY_INLINES_HIDDEN ON)
endfunction()
