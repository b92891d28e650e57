// Codes of errors and warnings. A code names a problem and stays the same when its message is reworded, so scripts and
// tests compare the code and the values of a message (core/error.h). `some help errors`, docs/errors.md and the names
// below are all generated from this list.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace some {

// X(enumerator, meaning) is one code; T(topic) begins a topic. In user-visible names '_' becomes '-':
// setting-out-of-range.
#define SOME_ERROR_CODES(T, X)                                                                           \
  T("command line")                                                                                      \
  X(command_unknown, "no command has this name")                                                         \
  X(argument_missing, "a required argument or option is missing")                                        \
  X(argument_unexpected, "an argument or option is unknown or out of place")                             \
  X(option_invalid, "the value of an option is out of range or of the wrong type")                       \
  X(option_conflict, "two options exclude each other")                                                   \
  X(option_needs_another, "an option requires another one")                                              \
  X(output_unwritable, "standard output cannot be written")                                              \
                                                                                                         \
  T("settings and recipes")                                                                              \
  X(setting_unknown, "no setting or table has this name")                                                \
  X(setting_missing, "a table lacks a required key")                                                     \
  X(setting_type, "the value of a setting has the wrong type")                                           \
  X(setting_out_of_range, "the value of a setting is out of range")                                      \
  X(setting_conflict, "two settings contradict each other, or one would have no effect")                 \
  X(setting_misplaced, "a setting cannot be set in this place")                                          \
  X(setting_syntax, "an override is not written as KEY=VALUE")                                           \
  X(stage_unknown, "the recipe has no such stage")                                                       \
  X(recipe_not_found, "no recipe has this name")                                                         \
  X(recipe_base_invalid, "the base of a recipe is missing, or a recipe is its own base")                 \
  X(name_taken, "a name is used twice")                                                                  \
  X(recipe_invalid, "a table of a recipe is invalid")                                                    \
  X(toml_syntax, "a file is not valid TOML")                                                             \
                                                                                                         \
  T("files and folders")                                                                                 \
  X(file_not_found, "file or folder not found")                                                          \
  X(file_unreadable, "a file cannot be read")                                                            \
  X(file_unwritable, "a file cannot be written, renamed or removed")                                     \
  X(file_not_regular, "a path is a folder, pipe or device instead of a file")                            \
  X(file_too_large, "a file exceeds the size limit")                                                     \
  X(file_changed, "a file changed while it was read, or since it was last read")                         \
  X(file_damaged, "a file does not match its checksum or format")                                        \
  X(file_wrong_kind, "a file is of another kind than required")                                          \
  X(folder_not_found, "folder not found")                                                                \
  X(folder_empty, "a folder has none of the required files")                                             \
  X(folder_unreadable, "a folder or path cannot be read")                                                \
  X(folder_unwritable, "a folder cannot be created, written or removed")                                 \
  X(link_broken, "a symbolic link points to nothing")                                                    \
  X(path_exists, "the output path already exists")                                                       \
  X(checksum_missing, "a file of an earlier version has no checksum (warning)")                          \
                                                                                                         \
  T("JSON and tensors in files")                                                                         \
  X(json_syntax, "a text is not valid JSON")                                                             \
  X(json_missing, "a JSON object lacks a key")                                                           \
  X(json_type, "a JSON value has the wrong type")                                                        \
  X(json_out_of_range, "a number in JSON is out of range")                                               \
  X(safetensors_header, "the header of a safetensors file is invalid")                                   \
  X(safetensors_entry, "the header of a file describes a tensor incorrectly")                            \
  X(safetensors_layout, "the tensors of a file overlap, leave gaps or lie outside of it")                \
  X(tensor_not_found, "a file has no tensor of this name")                                               \
  X(tensor_unexpected, "a file has an unknown tensor, or one twice")                                     \
  X(tensor_damaged, "a tensor does not match its checksum")                                              \
  X(tensor_shape, "a tensor has another shape than required")                                            \
  X(tensor_type, "a tensor has another element type than required")                                      \
  X(tensor_value, "a tensor has an invalid value")                                                       \
  X(tensor_unwritable, "a tensor or its name cannot be written to a file")                               \
                                                                                                         \
  T("text and tokenizers")                                                                               \
  X(text_unknown, "no built-in text has this name")                                                      \
  X(text_empty, "a text has no documents, or none with tokens")                                          \
  X(text_too_short, "a text is too short for this command")                                              \
  X(text_too_long, "a text, document or prompt is too long")                                             \
  X(text_not_utf8, "a text is not UTF-8")                                                                \
  X(text_field_missing, "a JSON line lacks the text field")                                              \
  X(text_changed, "a text differs from the one used before")                                             \
  X(text_overlap, "evaluation text is also in the text that was learned (warning)")                      \
  X(story_template, "a template of the built-in stories is invalid")                                     \
  X(tokenizer_unknown, "tokenizer kind or file not found")                                               \
  X(tokenizer_invalid, "a tokenizer file is invalid")                                                    \
  X(tokenizer_unsupported, "a tokenizer file uses an unsupported feature")                               \
  X(tokenizer_mismatch, "a tokenizer differs from the required one")                                     \
  X(token_out_of_range, "a token id is outside the vocabulary")                                          \
  X(token_invalid, "a text is not a token id")                                                           \
  X(vocabulary_too_large, "a vocabulary is larger than supported")                                       \
  X(vocabulary_size_missed, "a vocabulary has another size than requested (warning)")                    \
  X(token_cache_damaged, "a token cache is damaged")                                                     \
                                                                                                         \
  T("runs and checkpoints")                                                                              \
  X(run_not_found, "run not found")                                                                      \
  X(run_invalid, "a folder is not a run")                                                                \
  X(run_exists, "the folder already contains a run")                                                     \
  X(run_locked, "another process is training the run")                                                   \
  X(run_finished, "a run is finished")                                                                   \
  X(run_mismatch, "a run has other settings or data than required")                                      \
  X(run_unlisted, "a run is omitted from a list (warning)")                                              \
  X(run_settings_changed, "the settings of a resumed run were edited (warning)")                         \
  X(resume_refused, "a resumed run cannot accept this change")                                           \
  X(from_mismatch, "a run cannot start from the weights of this other run")                              \
  X(checkpoint_not_found, "checkpoint not found")                                                        \
  X(checkpoint_mismatch, "a checkpoint belongs to another recipe or run")                                \
  X(checkpoint_mixed, "the files of a checkpoint belong to different runs or steps")                     \
  X(checkpoint_without_optimizer, "a checkpoint lacks the optimizer state")                              \
  X(checkpoint_unreadable, "a checkpoint cannot be read")                                                \
  X(metrics_damaged, "a metrics file was repaired or lost lines (warning)")                              \
  X(samples_damaged, "saved samples are damaged")                                                        \
  X(start_keys_missing, "the key positions of step 0 are missing (warning)")                             \
  X(computed_elsewhere, "a run continues on hardware or libraries that may round differently (warning)") \
  X(data_too_few, "the training text is too short for one step")                                         \
  X(data_nothing_to_predict, "a text has no token to predict")                                           \
  X(loss_not_finite, "a loss or logit is not finite")                                                    \
                                                                                                         \
  T("models, experts and keys")                                                                          \
  X(model_mismatch, "weights do not fit the model")                                                      \
  X(model_unsuitable, "the model does not support this command")                                         \
  X(experts_missing, "a model has no experts")                                                           \
  X(layer_out_of_range, "the model does not have this layer")                                            \
  X(expert_out_of_range, "the model does not have this expert, or not that many")                        \
  X(window_out_of_range, "a window is longer than the context of the model")                             \
  X(prompt_empty, "a prompt has no tokens")                                                              \
  X(library_invalid, "an expert library is invalid or cannot be generated")                              \
  X(library_mismatch, "an expert library does not fit the recipe")                                       \
  X(library_slow, "an expert library takes long to generate (warning)")                                  \
  X(rule_unknown, "no key rule has this name")                                                           \
                                                                                                         \
  T("memories")                                                                                          \
  X(memory_missing, "memory not found")                                                                  \
  X(memory_invalid, "a memory file is invalid")                                                          \
  X(memory_damaged, "a memory file is damaged")                                                          \
  X(memory_mismatch, "a memory belongs to another model or run")                                         \
  X(memory_settings, "a memory was made with other settings")                                            \
  X(memory_text_unknown, "a memory has no text of this name, or several")                                \
  X(memory_not_kept, "the updates of a memory could not be saved")                                       \
                                                                                                         \
  T("compressed files")                                                                                  \
  X(compressed_invalid, "a compressed file is invalid or damaged")                                       \
  X(compressed_mismatch, "a compressed file requires another model or another kind of machine")          \
                                                                                                         \
  T("series, claims and reports")                                                                        \
  X(series_unknown, "no series or run has this name")                                                    \
  X(claims_invalid, "the texts or claims of the report are invalid")                                     \
  X(data_missing, "a text that the runs require is missing")                                             \
                                                                                                         \
  T("exported models and fixtures")                                                                      \
  X(export_unsupported, "the model cannot be exported in this way")                                      \
  X(import_invalid, "a folder or file is not an importable model")                                       \
  X(import_mismatch, "a file of an exported model contradicts its recipe")                               \
  X(fixture_invalid, "a fixture is invalid")                                                             \
                                                                                                         \
  T("board and server")                                                                                  \
  X(request_invalid, "a request is invalid")                                                             \
  X(request_unknown, "unknown address")                                                                  \
  X(request_forbidden, "the board does not allow this")                                                  \
  X(board_busy, "the board is overloaded")                                                               \
  X(server_busy, "the server is at its limit of requests")                                               \
  X(api_key_invalid, "a request to the server has no valid API key")                                     \
  X(address_taken, "another program uses the address")                                                   \
  X(address_unusable, "the program cannot listen at the address")                                        \
                                                                                                         \
  T("ranks")                                                                                             \
  X(rank_environment, "the environment variables of a rank contradict each other")                       \
  X(ranks_unsupported, "the command does not support several ranks")                                     \
  X(ranks_unreachable, "ranks cannot reach each other")                                                  \
  X(ranks_differ, "ranks have different settings, data or builds")                                       \
  X(ranks_uneven, "ranks cannot share the work evenly")                                                  \
  X(rank_transfer, "ranks cannot exchange this data")                                                    \
                                                                                                         \
  T("machine")                                                                                           \
  X(device_unknown, "no device or precision has this name")                                              \
  X(device_unusable, "a device cannot be used")                                                          \
  X(precision_unusable, "a device does not support this precision")                                      \
  X(gpu_failed, "the GPU or one of its libraries reported an error")                                     \
  X(memory_insufficient, "the command needs more memory than is available")                              \
  X(out_of_memory, "memory allocation failed")                                                           \
  X(system_failed, "the operating system reported an error")                                             \
                                                                                                         \
  T("the library itself (a mistake of the program that calls it)")                                       \
  X(shape_mismatch, "shapes or sizes do not match")                                                      \
  X(type_unsupported, "an element type is not supported")                                                \
  X(index_out_of_range, "an index is out of range")                                                      \
  X(size_unsupported, "a size exceeds what is supported")                                                \
  X(parameter_unknown, "no parameter has this name")                                                     \
  X(internal, "internal error")

#define SOME_TOPIC(topic)
#define SOME_ENUMERATOR(code, meaning) code,
enum class Code { SOME_ERROR_CODES(SOME_TOPIC, SOME_ENUMERATOR) };
#undef SOME_TOPIC
#undef SOME_ENUMERATOR

struct CodeMeaning {
  Code code;
  std::string_view name, topic, meaning;
};

std::span<const CodeMeaning> error_codes();  // in the order of the list
std::string_view name_of(Code code);         // "setting-out-of-range"
std::optional<Code> code_named(std::string_view name);

}  // namespace some
