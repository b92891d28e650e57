# Fault injection: every file call of short commands is killed and fails once (tests/faults/run.py), power failures lose
# what was not flushed (tests/faults/power.py), and signals stop runs at random moments (tests/faults/signals.py).
# scripts/faults runs all of these at length.
enable_language(C)
add_library(fault_shim MODULE tests/faults/shim.c)
target_compile_options(fault_shim PRIVATE -Wall -Wextra)
target_link_libraries(fault_shim PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)

# Runs a third of the faults here, fewer for scenarios that repeat most of another one's work; ./check --long runs all
# of them with every errno.
set(fault_tests "")
set(long_fault_tests "")
set(often train resume adapt export import lab lab-list lab-report inspect generate eval runs tokenizer stories decompress)
set(seldom compress read read-more train-memory extend-memory forget merge prune memory-show sweep library trace-csv
  ablate plot needle continual lr train-forms)
foreach(scenario ${often} ${seldom})
  set(fault_stride 3)
  if(scenario IN_LIST seldom)
    set(fault_stride 12)
  endif()
  add_test(NAME faults.${scenario} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/faults/run.py
    --program $<TARGET_FILE:some> --shim $<TARGET_FILE:fault_shim> --scenario ${scenario} --stride ${fault_stride})
  list(APPEND fault_tests faults.${scenario})
  add_long_test(long.faults.${scenario} ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/faults/run.py
    --program $<TARGET_FILE:some> --shim $<TARGET_FILE:fault_shim> --scenario ${scenario} --every)
  list(APPEND long_fault_tests long.faults.${scenario})
endforeach()
# Tests one state in eight here; all states of commands with only a few, one in 24 of commands that repeat most of
# another one's work. ./check --long tests all of them.
foreach(scenario train resume adapt export import lab tokenizer compress decompress read read-more train-memory
    extend-memory forget merge prune sweep library trace-csv)
  set(power_stride 8)
  if(scenario MATCHES "^(read|read-more|forget|merge|prune|library|trace-csv)$")
    set(power_stride 1)
  elseif(scenario IN_LIST seldom)
    set(power_stride 24)
  endif()
  add_test(NAME faults.power-${scenario} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/faults/power.py
    --program $<TARGET_FILE:some> --shim $<TARGET_FILE:fault_shim> --scenario ${scenario} --stride ${power_stride})
  list(APPEND fault_tests faults.power-${scenario})
  add_long_test(long.faults.power-${scenario} ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/faults/power.py
    --program $<TARGET_FILE:some> --shim $<TARGET_FILE:fault_shim> --scenario ${scenario})
  list(APPEND long_fault_tests long.faults.power-${scenario})
endforeach()
# A board that edits runs while its calls fail or another board edits them.
add_test(NAME faults.board COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/faults/board.py
  --program $<TARGET_FILE:some> --shim $<TARGET_FILE:fault_shim>)
list(APPEND fault_tests faults.board)
add_long_test(long.faults.board sh -c "exec '${Python3_EXECUTABLE}' '${CMAKE_SOURCE_DIR}/tests/faults/board.py' \
  --program '$<TARGET_FILE:some>' --shim '$<TARGET_FILE:fault_shim>' --rounds 400 --seed $(date +%s)")
list(APPEND long_fault_tests long.faults.board)
add_test(NAME faults.signals COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/faults/signals.py
  --program $<TARGET_FILE:some> --count 30)
list(APPEND fault_tests faults.signals)
foreach(signal TERM INT HUP KILL)
  add_long_test(long.faults.signals-${signal} sh -c "exec '${Python3_EXECUTABLE}' '${CMAKE_SOURCE_DIR}/tests/faults/signals.py' \
    --program '$<TARGET_FILE:some>' --count 100 --signal ${signal} --seed $(date +%s)")
  list(APPEND long_fault_tests long.faults.signals-${signal})
endforeach()
# Thousands of small files, each flushed: use a memory file system.
if(EXISTS /dev/shm)
  set_tests_properties(${fault_tests} ${long_fault_tests} PROPERTIES ENVIRONMENT TMPDIR=/dev/shm)
endif()
set_tests_properties(${fault_tests} PROPERTIES LABELS slow COST 5 TIMEOUT 600)
set_tests_properties(faults.signals PROPERTIES COST 27)
# Clients of `some serve` that disconnect, stall and send invalid data while a well-behaved client is
# served.
add_test(NAME serve.hostile COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/serve/hostile.py --program $<TARGET_FILE:some>)
set_tests_properties(serve.hostile PROPERTIES LABELS slow COST 25 TIMEOUT 300)
add_long_test(long.serve_hostile sh -c "exec '${Python3_EXECUTABLE}' '${CMAKE_SOURCE_DIR}/tests/serve/hostile.py' \
    --program '$<TARGET_FILE:some>' --seconds 300 --clients 24 --seed $(date +%s)")
