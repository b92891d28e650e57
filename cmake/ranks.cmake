# Training on several ranks (tests/ranks/run.py): the same bytes on 1, 2 and 4, through kills and changes of their
# number; evaluation, memories and queues of runs; ranks started by PMIx as srun does; different recipes, programs and
# texts refused; a rank that hangs or goes round in circles. Skipped where there is no MPI.
find_program(SOME_MPIRUN mpirun)
if(TARGET some_mpi AND SOME_MPIRUN)
  add_library(endless MODULE ${CMAKE_SOURCE_DIR}/tests/ranks/endless.cc)
  target_compile_options(endless PRIVATE -Wall -Wextra)
  foreach(scenario equal used srun elastic experts refusals installed lost)
    add_test(NAME ranks.${scenario} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/ranks/run.py
      --program $<TARGET_FILE:some> --mpirun ${SOME_MPIRUN} --endless $<TARGET_FILE:endless> ${scenario})
    set_tests_properties(ranks.${scenario} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 ENVIRONMENT TMPDIR=/tmp)
  endforeach()
endif()
