# Bundles the script and the style of the program's pages.
# usage: cmake -D MODULES=NODE_MODULES -D PLATFORM=linux-x64 -D OUT=FOLDER -P bundle.cmake
# Writes page.js, page.css and page.sha256, the script's hash, which a page's content security policy
# contains.
cmake_minimum_required(VERSION 3.25)
set(banner "/*! Holds Apache ECharts and ZRender (Apache License 2.0, BSD 3-Clause License), umap-js (Apache License 2.0),\n"
  "ml-levenberg-marquardt and ml-matrix (MIT License) */")
list(JOIN banner "" banner)
set(ENV{NODE_PATH} ${MODULES})
execute_process(
  COMMAND ${MODULES}/@esbuild/${PLATFORM}/bin/esbuild src/main.js src/page.css --outdir=${OUT} --entry-names=page --bundle --minify
    --format=iife --target=es2022,chrome111,firefox113,safari16.4 --charset=utf8 "--banner:js=${banner}" --legal-comments=eof
    --log-level=warning
  WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR} COMMAND_ERROR_IS_FATAL ANY)

# A script must not contain tags that would end the page's script element or begin a comment.
file(READ ${OUT}/page.js script)
string(TOLOWER "${script}" script)
foreach(mark "</script" "<!--")
  string(FIND "${script}" "${mark}" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "page.js holds ${mark}: it cannot stand inside a page")
  endif()
endforeach()

file(SHA256 ${OUT}/page.js hash)
string(TOUPPER ${hash} hash)
execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${hash} COMMAND basenc --base16 -d COMMAND base64 -w 0
  OUTPUT_FILE ${OUT}/page.sha256 COMMAND_ERROR_IS_FATAL ANY)
