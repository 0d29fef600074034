include(CMakePackageConfigHelpers)

# A shared library carries the cache; a static one needs its archive.
set(libraries backlight_runtime)
if(NOT BUILD_SHARED_LIBS)
    list(APPEND libraries backlight_cache)
    if(BACKLIGHT_BUILD_SHARED)
        list(APPEND libraries backlight_shared)
    endif()
endif()
install(
    TARGETS ${libraries}
    EXPORT backlight_targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/include/backlight
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
if(BACKLIGHT_BUILD_TOOLS)
    set_target_properties(backlight_command PROPERTIES EXPORT_NAME command)
    install(
        TARGETS backlight_command
        EXPORT backlight_targets
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/backlight)
install(
    EXPORT backlight_targets
    FILE backlight-targets.cmake
    NAMESPACE backlight::
    DESTINATION ${package_dir})
set(cxx_runtime_libraries ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER cxx_runtime_libraries INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|m)$")
configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/backlight-config.cmake.in
    ${PROJECT_BINARY_DIR}/backlight-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/backlight-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/backlight_embed_kernels.cmake
              ${PROJECT_BINARY_DIR}/backlight-config.cmake
              ${PROJECT_BINARY_DIR}/backlight-config-version.cmake DESTINATION ${package_dir})

# pkg-config knows the shared library alone.
if(BUILD_SHARED_LIBS OR BACKLIGHT_BUILD_SHARED)
    set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    file(RELATIVE_PATH prefix_from_pkgconfig ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir}
         ${CMAKE_INSTALL_PREFIX})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/backlight.pc.in ${PROJECT_BINARY_DIR}/backlight.pc
                   @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/backlight.pc DESTINATION ${pkgconfig_dir})
endif()
