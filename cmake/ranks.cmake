# Tests of training on several ranks (tests/ranks/run.py): bit-identical results on 1, 2 and 4 ranks, through kills
# and changes of their number; evaluation, memories and run queues; ranks started through PMIx as by srun; rejection
# of different recipes, programs and texts; a rank that hangs or loops forever. Skipped without MPI.
find_program(SOME_MPIRUN mpirun)
if(TARGET some_mpi AND SOME_MPIRUN)
  add_library(endless MODULE ${CMAKE_SOURCE_DIR}/tests/ranks/endless.cc)
  target_compile_options(endless PRIVATE -Wall -Wextra)
  foreach(scenario equal used srun elastic experts refusals installed lost)
    add_test(NAME ranks.${scenario} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/ranks/run.py
      --program $<TARGET_FILE:some> --mpirun ${SOME_MPIRUN} --endless $<TARGET_FILE:endless> ${scenario})
    set_tests_properties(ranks.${scenario} PROPERTIES LABELS "slow;mpi" COST 30 SKIP_RETURN_CODE 77 TIMEOUT 300 ENVIRONMENT TMPDIR=/tmp)
  endforeach()
  add_long_test(long.ranks.elastic sh -c "exec '${Python3_EXECUTABLE}' '${CMAKE_SOURCE_DIR}/tests/ranks/run.py' --rounds 20 \
    --program '$<TARGET_FILE:some>' --mpirun '${SOME_MPIRUN}' --ranks 1,2,4,8 --seed $(date +%s) elastic")
  add_long_test(long.ranks.soak sh -c "exec '${Python3_EXECUTABLE}' '${CMAKE_SOURCE_DIR}/tests/ranks/soak.py' --minutes 10 \
    --program '$<TARGET_FILE:some>' --mpirun '${SOME_MPIRUN}' --seed $(date +%s)")
  # Ranks on simulated machines, which are network namespaces (tests/ranks/hosts.py). Skipped if these are
  # not permitted.
  add_library(clock MODULE ${CMAKE_SOURCE_DIR}/tests/ranks/clock.c)
  target_link_libraries(clock PRIVATE ${CMAKE_DL_LIBS})
  add_long_test(long.ranks.hosts ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/ranks/hosts.py --program $<TARGET_FILE:some>
    --mpirun ${SOME_MPIRUN} --clock $<TARGET_FILE:clock>)
  set_tests_properties(long.ranks.hosts PROPERTIES LABELS "long;mpi" SKIP_RETURN_CODE 77 ENVIRONMENT TMPDIR=/tmp)
  set_tests_properties(long.ranks.elastic long.ranks.soak PROPERTIES LABELS "long;mpi" ENVIRONMENT TMPDIR=/tmp)
endif()
