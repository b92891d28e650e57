# Bundles script and style of the program's pages from web/ and packages of npm's registry, and embeds the result. With
# SOME_WEB=OFF the program is built without charts, and its pages state that.
option(SOME_WEB "Bundle the charts of the program's pages; fetches packages from npm's registry" ON)

set(web_build ${CMAKE_BINARY_DIR}/web)
file(MAKE_DIRECTORY ${web_build})
if(SOME_WEB)
  set(web ${CMAKE_SOURCE_DIR}/web)
  if(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(platform linux-arm64)
  else()
    set(platform linux-x64)
  endif()
  # Packages are installed into the build folder, from the lock file, so that the checkout stays
  # clean.
  add_custom_command(
    OUTPUT ${web_build}/installed
    COMMAND ${CMAKE_COMMAND} -D INTO=${web_build} -D PLATFORM=${platform} -D TESTS=${SOME_TESTS} -P ${web}/install.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${web_build}/installed
    DEPENDS ${web}/package-lock.json ${web}/install.cmake
    COMMENT "Installing the chart library from npm's registry"
    VERBATIM)
  set(page_script ${web_build}/page.js)
  set(page_style ${web_build}/page.css)
  set(page_hash ${web_build}/page.sha256)
  file(GLOB_RECURSE web_sources CONFIGURE_DEPENDS ${web}/src/*)
  add_custom_command(
    OUTPUT ${page_script} ${page_style} ${page_hash}
    COMMAND ${CMAKE_COMMAND} -D MODULES=${web_build}/node_modules -D PLATFORM=${platform} -D OUT=${web_build} -P ${web}/bundle.cmake
    DEPENDS ${web_build}/installed ${web}/bundle.cmake ${web_sources}
    COMMENT "Bundling script and style of the program's pages"
    VERBATIM)
else()
  set(page_script ${web_build}/empty)
  set(page_style ${CMAKE_SOURCE_DIR}/web/src/style/frame.css)  # the other views are made by the script
  set(page_hash ${web_build}/empty)
  file(TOUCH ${web_build}/empty)
endif()
message(STATUS "Charts in pages: ${SOME_WEB}")

# Files that src/plot/assets.cc embeds, in the order in which it reads them.
set(page_files ${page_style} ${page_script} ${page_hash})
