# Script and style of the program's pages: web/ is bundled with npm and node, and the program carries the result with it.
# SOME_WEB=OFF, or no node: the program is built without charts, and its pages say so.
find_program(SOME_NODE NAMES node nodejs)
find_program(SOME_NPM NAMES npm)
if(SOME_NODE AND SOME_NPM)
  option(SOME_WEB "Bundle the charts of the program's pages with npm" ON)
else()
  option(SOME_WEB "Bundle the charts of the program's pages with npm (node or npm was not found)" OFF)
endif()

set(web_build ${CMAKE_BINARY_DIR}/web)
file(MAKE_DIRECTORY ${web_build})
if(SOME_WEB)
  if(NOT SOME_NODE OR NOT SOME_NPM)
    message(FATAL_ERROR "SOME_WEB=ON needs node and npm; install them or configure with -DSOME_WEB=OFF")
  endif()
  file(GLOB_RECURSE web_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/src/*)
  # Packages are installed in the build folder, from the lock file, so that the checkout stays clean.
  add_custom_command(
    OUTPUT ${web_build}/installed
    COMMAND ${CMAKE_COMMAND} -E copy_if_different package.json package-lock.json .npmrc ${web_build}
    COMMAND ${CMAKE_COMMAND} -E chdir ${web_build} ${SOME_NPM} ci --ignore-scripts --no-audit --no-fund --loglevel=error
    COMMAND ${CMAKE_COMMAND} -E touch ${web_build}/installed
    DEPENDS ${CMAKE_SOURCE_DIR}/web/package.json ${CMAKE_SOURCE_DIR}/web/package-lock.json
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/web
    COMMENT "Installing the chart library from the npm registry (where there is none, configure with -DSOME_WEB=OFF)"
    VERBATIM)
  set(page_script ${web_build}/page.js)
  set(page_style ${web_build}/page.css)
  set(page_hash ${web_build}/page.sha256)
  add_custom_command(
    OUTPUT ${page_script} ${page_style} ${page_hash}
    COMMAND ${SOME_NODE} ${CMAKE_SOURCE_DIR}/web/build.mjs ${web_build} ${web_build}/node_modules
    DEPENDS ${web_build}/installed ${CMAKE_SOURCE_DIR}/web/build.mjs ${web_sources}
    COMMENT "Bundling script and style of the program's pages"
    VERBATIM)
else()
  set(page_script ${web_build}/empty)
  set(page_style ${CMAKE_SOURCE_DIR}/web/src/style/frame.css)  # the other views are made by the script
  set(page_hash ${web_build}/empty)
  file(TOUCH ${web_build}/empty)
endif()
message(STATUS "Charts in pages: ${SOME_WEB}")

set_source_files_properties(${CMAKE_SOURCE_DIR}/src/page/assets.cc PROPERTIES
  COMPILE_DEFINITIONS "SOME_PAGE_STYLE=\"${page_style}\";SOME_PAGE_SCRIPT=\"${page_script}\";SOME_PAGE_HASH=\"${page_hash}\""
  OBJECT_DEPENDS "${page_style};${page_script};${page_hash}")
