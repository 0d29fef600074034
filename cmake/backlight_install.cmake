include(CMakePackageConfigHelpers)

install(
    TARGETS backlight_cache backlight_runtime
    EXPORT backlight_targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/include/backlight
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp")
if(BACKLIGHT_BUILD_TOOLS)
    set_target_properties(backlight_command PROPERTIES INSTALL_RPATH
                                                       $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
    set_target_properties(backlight_command PROPERTIES EXPORT_NAME command)
    install(
        TARGETS backlight_command
        EXPORT backlight_targets
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
set_target_properties(backlight_cache backlight_runtime PROPERTIES INSTALL_RPATH $ORIGIN)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/backlight)
install(
    EXPORT backlight_targets
    FILE backlight-targets.cmake
    NAMESPACE backlight::
    DESTINATION ${package_dir})
configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/backlight-config.cmake.in
    ${PROJECT_BINARY_DIR}/backlight-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/backlight-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/backlight_embed_kernels.cmake
              ${PROJECT_BINARY_DIR}/backlight-config.cmake
              ${PROJECT_BINARY_DIR}/backlight-config-version.cmake DESTINATION ${package_dir})
