# Every file call of short commands killed and failed once (tests/faults/run.py), and runs stopped by signals at random
# moments (tests/faults/signals.py). scripts/faults does both at length.
enable_language(C)
add_library(fault_shim MODULE tests/faults/shim.c)
target_compile_options(fault_shim PRIVATE -Wall -Wextra)
target_link_libraries(fault_shim PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)

# Loading CUDA's libraries takes fifty times as long as everything else the program does at its start: with them, a fifth
# of the faults must do here. scripts/faults leaves none out.
set(fault_stride 1)
if(SOME_HAVE_CUDA)
  set(fault_stride 5)
endif()
set(fault_tests "")
foreach(scenario train resume adapt export import lab lab-list lab-report inspect generate eval runs tokenizer stories)
  add_test(NAME faults.${scenario} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/faults/run.py
    --program $<TARGET_FILE:some> --shim $<TARGET_FILE:fault_shim> --scenario ${scenario} --stride ${fault_stride})
  list(APPEND fault_tests faults.${scenario})
endforeach()
add_test(NAME faults.signals COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/faults/signals.py
  --program $<TARGET_FILE:some> --count 30)
list(APPEND fault_tests faults.signals)
# Small files by the thousand, each flushed, belong in memory.
if(EXISTS /dev/shm)
  set_tests_properties(${fault_tests} PROPERTIES ENVIRONMENT TMPDIR=/dev/shm)
endif()
set_tests_properties(${fault_tests} PROPERTIES TIMEOUT 600)
