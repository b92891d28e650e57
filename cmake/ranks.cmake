# Training on several ranks (tests/ranks/run.py): the same bytes on 1, 2 and 4, through kills and changes of their
# number; different recipes, programs and texts refused; a rank that hangs. Skipped where there is no MPI.
find_program(SOME_MPIRUN mpirun)
if(TARGET some_mpi AND SOME_MPIRUN)
  foreach(scenario equal elastic experts refusals lost)
    add_test(NAME ranks.${scenario} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/ranks/run.py
      --program $<TARGET_FILE:some> --mpirun ${SOME_MPIRUN} ${scenario})
    set_tests_properties(ranks.${scenario} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 ENVIRONMENT TMPDIR=/tmp)
  endforeach()
endif()
