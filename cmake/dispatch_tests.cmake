# Tests of the one program for all x86-64 CPUs (cmake/cpu_dispatch.cmake): no newer instructions outside the x86-64-v3
# version, equal numbers up to rounding from both versions, unit tests of the baseline version, and an emulated CPU
# without AVX.
if(some_dispatch)
  add_test(NAME dispatch.instructions COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/dispatch/instructions_test.py ${CMAKE_OBJDUMP} $<TARGET_FILE:some>)
  add_test(NAME dispatch.versions COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/dispatch/versions_test.py $<TARGET_FILE:some> ${CMAKE_SOURCE_DIR})
  add_test(NAME dispatch.old_cpu COMMAND ${CMAKE_SOURCE_DIR}/tests/dispatch/old_cpu_test.sh $<TARGET_FILE:some> ${CMAKE_SOURCE_DIR})
  set_tests_properties(dispatch.instructions dispatch.versions dispatch.old_cpu PROPERTIES TIMEOUT 600)
  set_tests_properties(dispatch.old_cpu PROPERTIES SKIP_RETURN_CODE 77)
  # Every check runs the unit tests of two small rooms; dispatch.versions runs the operations of all
  # rooms.
  foreach(room experts keys)
    add_test(NAME dispatch.baseline_${room} COMMAND test_${room} --gtest_brief=1)
    set_tests_properties(dispatch.baseline_${room} PROPERTIES ENVIRONMENT SOME_CPU=x86-64 TIMEOUT 600)
  endforeach()
  foreach(room ops memory)
    add_long_test(long.baseline_${room} test_${room} --gtest_brief=1)
    set_tests_properties(long.baseline_${room} PROPERTIES ENVIRONMENT SOME_CPU=x86-64)
  endforeach()
endif()
