# One program for all x86-64 CPUs. Everything is compiled for the x86-64 baseline (SSE2). Sources that compute are compiled
# a second time for x86-64-v3 (AVX2, FMA), and the version is chosen when the program starts (core/instruction_set.h).
#
# Both versions of a room's sources contain the same inline functions and templates, and a linker keeps one copy of each:
# a copy with AVX2 could end up in code that must run without. So the objects of a version are linked into one object, in
# which everything but the functions that other files call becomes local (cmake/combine_versions.cmake). These functions
# get the version as a suffix; the name that callers use is a jump through a table.
option(SOME_CPU_DISPATCH "Choose AVX2 code when the program starts (x86-64 with GNU binutils); OFF: the program needs AVX2" ON)

set(some_dispatch OFF)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  find_program(SOME_LD NAMES ${CMAKE_CXX_COMPILER_TARGET}-ld.bfd ld.bfd ld)  # other linkers lack --force-group-allocation
  # Sanitized programs contain one version, because sanitizers register the variables of each
  # object.
  if(SOME_CPU_DISPATCH AND SOME_LD AND CMAKE_NM AND CMAKE_OBJCOPY AND NOT SOME_ASAN)
    set(some_dispatch ON)
  else()
    target_compile_options(some_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3>)
  endif()
endif()
message(STATUS "AVX2 chosen at run time: ${some_dispatch}")

# Beyond all *_cpu.cc and cpu/*.cc: initial values (random numbers are fused multiply-adds) and pictures (Eigen uses the vectors that
# it is compiled for). support_cpu.cc holds memory that both versions share.
set(dispatched_files experts/methods.cc keys/key_store.cc model/parameters.cc plot/projection.cc)
set(undispatched_files kernels/cpu/support.cc)

# Moves the sources that have versions from the list named `list` to object libraries of a room, and sets `combined` to the
# object that replaces them. optimize: the level of the v3 version (as without versions); libraries: of the room.
function(dispatch_versions room list combined optimize libraries)
  set(${combined} "" PARENT_SCOPE)
  if(NOT some_dispatch)
    return()
  endif()
  set(chosen "")
  foreach(source ${${list}})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/src ${source})
    if((name MATCHES "_cpu\\.cc$|/cpu/" OR name IN_LIST dispatched_files) AND NOT name IN_LIST undispatched_files)
      list(APPEND chosen ${source})
    endif()
  endforeach()
  if(NOT chosen)
    return()
  endif()
  foreach(version v3 baseline)
    set(target some_${room}_${version})
    add_library(${target} OBJECT ${chosen})
    target_link_libraries(${target} PRIVATE some_options ${libraries})
    target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/rooms/${room})
  endforeach()
  target_include_directories(some_${room}_v3 SYSTEM PRIVATE ${EIGEN_INCLUDE})
  target_include_directories(some_${room}_baseline SYSTEM PRIVATE ${EIGEN_INCLUDE})
  target_compile_options(some_${room}_v3 PRIVATE ${optimize} -march=x86-64-v3)
  target_compile_options(some_${room}_baseline PRIVATE -Wno-psabi)  # vectors of 32 bytes passed between local functions
  if(optimize STREQUAL "-O3")
    precompile(some_${room}_v3 O3-v3 ${common_headers})
  endif()
  precompile(some_${room}_baseline O2 ${json_headers})
  set(object ${CMAKE_BINARY_DIR}/dispatch/${room}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -DROOM=${room} -DOUT=${CMAKE_BINARY_DIR}/dispatch -DLD=${SOME_LD} -DNM=${CMAKE_NM}
      -DOBJCOPY=${CMAKE_OBJCOPY} -DCOMPILER=${CMAKE_CXX_COMPILER} "-DV3=$<FILTER:$<TARGET_OBJECTS:some_${room}_v3>,EXCLUDE,gch$>"
      "-DBASELINE=$<FILTER:$<TARGET_OBJECTS:some_${room}_baseline>,EXCLUDE,gch$>" -P ${CMAKE_SOURCE_DIR}/cmake/combine_versions.cmake
    DEPENDS $<TARGET_OBJECTS:some_${room}_v3> $<TARGET_OBJECTS:some_${room}_baseline> ${CMAKE_SOURCE_DIR}/cmake/combine_versions.cmake
    COMMENT "Combining the versions of src/${room}" VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  list(REMOVE_ITEM ${list} ${chosen})
  set(${list} ${${list}} PARENT_SCOPE)
  set(${combined} ${object} PARENT_SCOPE)
endfunction()
