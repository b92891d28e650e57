# Test entries of ctest. A test program runs in a few processes (shards of GoogleTest) instead of one per test case,
# because starting 2,600 processes took longer than most tests. Each process writes its results to
# BUILD/tests/ENTRY.xml, from which scripts/count-tests counts test cases.
#
# Labels: fast (seconds), slow or long; gpu, mpi and browser for tests that require these. Long entries have the
# configuration "long", which only `ctest -C long` (`./check --long`) runs.
set(test_results ${CMAKE_BINARY_DIR}/tests)
file(MAKE_DIRECTORY ${test_results})
set(test_filters ${CMAKE_SOURCE_DIR}/scripts/gpu/filters.py)

# add_test_program(test_NAME [SHARDS N COST SECONDS]): one entry NAME labeled fast, or, with a cost, N entries labeled
# slow, NAME.1 to NAME.N. ctest starts entries with the highest cost first. Test cases that require a GPU or a browser,
# which test_filters finds in the sources, have separate entries: NAME.gpu and NAME.browser.
function(add_test_program program)
  cmake_parse_arguments(PARSE_ARGV 1 with "" "SHARDS;COST" "")
  string(REGEX REPLACE "^test_" "" name ${program})
  set(special "")
  if(Python3_FOUND)
    foreach(kind gpu browser)
      set(option "")
      if(kind STREQUAL browser)
        set(option --browser)
      endif()
      execute_process(COMMAND ${Python3_EXECUTABLE} -B ${test_filters} ${option} ${CMAKE_SOURCE_DIR} ${name}
        OUTPUT_VARIABLE found COMMAND_ERROR_IS_FATAL ANY)
      string(JSON filter GET "${found}" ${program})
      if(filter)
        add_test_process(${name}.${kind} ${program} FILTER "${filter}" LABELS slow ${kind})
        list(APPEND special ${filter})
      endif()
    endforeach()
  endif()
  list(JOIN special ":" special)
  if(special)
    set(special "-${special}")
  endif()
  if(NOT with_COST)
    add_test_process(${name} ${program} FILTER "${special}" LABELS fast)
  elseif(with_SHARDS EQUAL 1)
    add_test_process(${name} ${program} FILTER "${special}" LABELS slow COST ${with_COST})
  else()
    math(EXPR cost "${with_COST} / ${with_SHARDS}")
    foreach(shard RANGE 1 ${with_SHARDS})
      add_test_process(${name}.${shard} ${program} FILTER "${special}" LABELS slow COST ${cost}
        SHARD ${shard} SHARDS ${with_SHARDS})
    endforeach()
  endif()
endfunction()

function(add_test_process entry program)
  cmake_parse_arguments(PARSE_ARGV 2 with "" "FILTER;COST;SHARD;SHARDS" "LABELS")
  add_test(NAME ${entry} COMMAND ${program})
  set(environment GTEST_OUTPUT=xml:${test_results}/${entry}.xml GTEST_FILTER=${with_FILTER})
  if(NOT with_FILTER)
    set(environment GTEST_OUTPUT=xml:${test_results}/${entry}.xml)
  endif()
  if(with_SHARDS)
    math(EXPR index "${with_SHARD} - 1")
    list(APPEND environment GTEST_TOTAL_SHARDS=${with_SHARDS} GTEST_SHARD_INDEX=${index})
  endif()
  set_tests_properties(${entry} PROPERTIES ENVIRONMENT "${environment}" LABELS "${with_LABELS}" TIMEOUT 600)
  if(with_COST)
    set_tests_properties(${entry} PROPERTIES COST ${with_COST})
  endif()
  if("gpu" IN_LIST with_LABELS)  # two programs at once would share its memory and its time
    set_tests_properties(${entry} PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()

function(add_long_test name)  # name, then the command
  add_test(NAME ${name} CONFIGURATIONS long COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS long TIMEOUT 7200)
endfunction()
