# The charts of `some lab report`: web/ is bundled with npm and node into one script, which the program carries with it.
# SOME_WEB=OFF, or no node: the program is built without charts, and its reports say so.
find_program(SOME_NODE NAMES node nodejs)
find_program(SOME_NPM NAMES npm)
if(SOME_NODE AND SOME_NPM)
  option(SOME_WEB "Bundle the charts of lab reports with npm" ON)
else()
  option(SOME_WEB "Bundle the charts of lab reports with npm (node or npm was not found)" OFF)
endif()

set(web_build ${CMAKE_BINARY_DIR}/web)
set(report_script ${web_build}/report.js)
file(MAKE_DIRECTORY ${web_build})
if(SOME_WEB)
  if(NOT SOME_NODE OR NOT SOME_NPM)
    message(FATAL_ERROR "SOME_WEB=ON needs node and npm; install them or configure with -DSOME_WEB=OFF")
  endif()
  file(GLOB web_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/src/*.js)
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
  add_custom_command(
    OUTPUT ${report_script}
    COMMAND ${SOME_NODE} ${CMAKE_SOURCE_DIR}/web/build.mjs ${report_script} ${web_build}/node_modules
    DEPENDS ${web_build}/installed ${CMAKE_SOURCE_DIR}/web/build.mjs ${web_sources}
    COMMENT "Bundling the charts of lab reports"
    VERBATIM)
else()
  set(report_script ${web_build}/empty.js)
  file(TOUCH ${report_script})
endif()
message(STATUS "Charts in lab reports: ${SOME_WEB}")

set(report_style ${CMAKE_SOURCE_DIR}/web/report.css)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/lab/assets.cc PROPERTIES
  COMPILE_DEFINITIONS "SOME_REPORT_STYLE=\"${report_style}\";SOME_REPORT_SCRIPT=\"${report_script}\""
  OBJECT_DEPENDS "${report_style};${report_script}")
