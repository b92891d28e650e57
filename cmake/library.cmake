# libsome.so with one public header (include/some/some.h), for find_package(some): the target some::some adds the
# header and the library, and no compiler flags of this project.
include(GNUInstallDirs)
add_library(some_library SHARED src/bindings/cpp/some.cc)
target_link_libraries(some_library PRIVATE some_cli)
target_compile_options(some_library PRIVATE -O1)
target_compile_features(some_library PUBLIC cxx_std_17)
target_include_directories(some_library PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(some_library PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/bindings/cpp/symbols.map)
set_target_properties(some_library PROPERTIES OUTPUT_NAME some EXPORT_NAME some
  VERSION ${PROJECT_VERSION} SOVERSION 1 LINK_DEPENDS ${CMAKE_SOURCE_DIR}/src/bindings/cpp/symbols.map)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/some)
install(TARGETS some_library EXPORT some LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT library)
install(FILES include/some/some.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/some COMPONENT library)
install(EXPORT some NAMESPACE some:: DESTINATION ${package_folder} FILE someConfig.cmake COMPONENT library)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/someConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/someConfigVersion.cmake DESTINATION ${package_folder} COMPONENT library)

if(SOME_TESTS AND NOT SOME_ASAN)
  enable_testing()
  add_test(NAME cpp.example COMMAND ${CMAKE_SOURCE_DIR}/tests/cpp/example ${CMAKE_COMMAND} ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
  set_tests_properties(cpp.example PROPERTIES LABELS slow TIMEOUT 600)
endif()
