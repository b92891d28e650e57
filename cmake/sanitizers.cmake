# Programs compiled with sanitizers. Only the sources under test are recompiled and linked with the ordinary
# libraries: a complete sanitized build would double the build time.

# Fuzzing of everything that reads files (tests/fuzz/fuzz.h): thirty seconds in every check; scripts/fuzz
# runs longer.
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*.cc)
set(reader_sources
  core/escape.cc core/files/files.cc core/files/folders.cc core/files/json.cc core/files/json_lines.cc tensor/safetensors.cc
  text/bpe_merge.cc text/corpus.cc text/tokenizer.cc text/tokenizer_json.cc text/utf8.cc
  data/batch.cc data/token_file.cc
  compress/compress.cc compress/compressed_file.cc compress/context_mixer.cc compress/saved_state.cc compress/text_mixer.cc compress/token_tree.cc
  experts/library_file.cc memory/memory_file.cc memory/settings.cc
  runs/checkpoint.cc runs/event_file.cc recipe/recipe.cc recipe/schema.cc recipe/tables.cc recipe/toml.cc recipe/values.cc recipe/write.cc
  runs/run.cc runs/run_labels.cc runs/train_state.cc
  verify/fixture.cc verify/verify.cc runs/history.cc lab/samples.cc lab/series.cc
  board/curves.cc board/json_walk.cc board/run_log.cc
  serve/api.cc
  exchange/hf_import.cc exchange/library_import.cc exchange/recipe_json.cc)
# The sources of a folder are compiled as one, because shared templates (mostly JSON) take most of the time with
# sanitizers.
set(reader_groups "")
foreach(source ${reader_sources})
  get_filename_component(folder ${source} DIRECTORY)
  list(APPEND reader_groups ${folder})
  string(APPEND readers_of_${folder} "#include \"${CMAKE_SOURCE_DIR}/src/${source}\"\n")
endforeach()
list(REMOVE_DUPLICATES reader_groups)
# In the libraries they are compiled separately (SOME_UNITY), because an object that a sanitized program replaces must
# contain nothing else.
list(TRANSFORM reader_sources PREPEND src/)
set_source_files_properties(${reader_sources} src/data/loader.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
set(reader_files "")
foreach(folder ${reader_groups})
  set(file ${CMAKE_BINARY_DIR}/readers/${folder}.cc)
  file(CONFIGURE OUTPUT ${file} CONTENT "${readers_of_${folder}}" @ONLY)
  list(APPEND reader_files ${file})
endforeach()
add_executable(fuzz_readers ${fuzz_sources} ${reader_files})
target_include_directories(fuzz_readers PRIVATE ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(fuzz_readers PRIVATE some_cli)
target_compile_options(fuzz_readers PRIVATE -O1 -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
target_compile_options(fuzz_readers PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)  # all sources are included
target_link_options(fuzz_readers PRIVATE -fsanitize=address,undefined)
target_compile_definitions(fuzz_readers PRIVATE SOME_SOURCE_DIR="${CMAKE_SOURCE_DIR}" SOME_SMALL_TABLES)
target_precompile_headers(fuzz_readers PRIVATE ${json_headers})

# The threads of the batch loader under ThreadSanitizer.
add_executable(loader_threads tests/threads/loader.cc
  src/data/batch.cc src/data/loader.cc src/data/token_file.cc src/core/escape.cc src/core/files/files.cc)
target_link_libraries(loader_threads PRIVATE some_data)
target_compile_options(loader_threads PRIVATE -O1 -fsanitize=thread)
target_link_options(loader_threads PRIVATE -fsanitize=thread)

# Limited by count instead of time: every machine runs the same inputs.
set(fuzz_tests "")
set(long_fuzz_tests "")
foreach(target tokenizer corpus json-lines safetensors token-cache event-file recipe override series metrics run-data
        checkpoint fixture memory compressed compress-state import library blocks board request)
  set(inputs 2000)
  if(target STREQUAL import)  # each makes a model
    set(inputs 200)
  elseif(target STREQUAL compressed)  # each is decoded
    set(inputs 300)
  endif()
  add_test(NAME fuzz.${target} COMMAND fuzz_readers --target ${target} --count ${inputs})
  list(APPEND fuzz_tests fuzz.${target})
  # ./check --long runs fifty times as many, with a new seed each time. A fault prints its seed.
  math(EXPR inputs "50 * ${inputs}")
  add_long_test(long.fuzz.${target} sh -c "exec '$<TARGET_FILE:fuzz_readers>' --target ${target} --count ${inputs} --seed $(date +%s)")
  list(APPEND long_fuzz_tests long.fuzz.${target})
endforeach()
add_test(NAME threads.loader COMMAND loader_threads)
# Thousands of small files: use a memory file system.
if(EXISTS /dev/shm)
  set_tests_properties(${fuzz_tests} ${long_fuzz_tests} PROPERTIES ENVIRONMENT TMPDIR=/dev/shm)
endif()
set_tests_properties(${fuzz_tests} threads.loader PROPERTIES LABELS slow TIMEOUT 600)
