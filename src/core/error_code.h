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
#define SOME_ERROR_CODES(T, X)                                                                \
  T("command line")                                                                           \
  X(command_unknown, "no command has this name")                                              \
  X(argument_missing, "a required argument or option is missing")                             \
  X(argument_unexpected, "an argument or option is not known here")                           \
  X(option_invalid, "the value of an option is out of range or of the wrong kind")            \
  X(option_conflict, "two options exclude each other")                                        \
  X(option_needs_another, "an option works only together with another one")                   \
  X(output_unwritable, "standard output cannot be written")                                   \
                                                                                              \
  T("settings and recipes")                                                                   \
  X(setting_unknown, "no setting or table has this name")                                     \
  X(setting_missing, "a table lacks a key that it needs")                                     \
  X(setting_type, "the value of a setting is of the wrong kind")                              \
  X(setting_out_of_range, "the value of a setting is out of range")                           \
  X(setting_conflict, "two settings contradict each other, or one would do nothing")          \
  X(setting_misplaced, "a setting cannot be set in this place")                               \
  X(setting_syntax, "a change of a setting is not written as KEY=VALUE")                      \
  X(stage_unknown, "the recipe has no such stage")                                            \
  X(recipe_not_found, "there is no such recipe")                                              \
  X(recipe_base_invalid, "the recipe that this one builds on is missing or builds on itself") \
  X(name_taken, "two things have the same name")                                              \
  X(recipe_invalid, "a table of a recipe is not as it should be")                             \
  X(toml_syntax, "a file is not TOML")                                                        \
                                                                                              \
  T("files and folders")                                                                      \
  X(file_not_found, "there is no such file or folder")                                        \
  X(file_unreadable, "a file cannot be read")                                                 \
  X(file_unwritable, "a file cannot be written, renamed or removed")                          \
  X(file_not_regular, "a path is a folder, pipe or device, not a file")                       \
  X(file_too_large, "a file is larger than is read here")                                     \
  X(file_changed, "a file changed while it was read, or since")                               \
  X(file_damaged, "a file does not hold what was written")                                    \
  X(file_wrong_kind, "a file is of another kind than is needed")                              \
  X(folder_not_found, "there is no such folder")                                              \
  X(folder_empty, "a folder holds none of the files that are needed")                         \
  X(folder_unreadable, "a folder or path cannot be read")                                     \
  X(folder_unwritable, "a folder cannot be made, written or removed")                         \
  X(link_broken, "a link leads nowhere")                                                      \
  X(path_exists, "something is already where results would be written")                       \
  X(checksum_missing, "a file of an earlier version has no checksum (warning)")               \
                                                                                              \
  T("JSON and tensors in files")                                                              \
  X(json_syntax, "a text is not JSON")                                                        \
  X(json_missing, "a JSON object lacks a key")                                                \
  X(json_type, "a JSON value is of the wrong kind")                                           \
  X(json_out_of_range, "a number in JSON is out of range")                                    \
  X(safetensors_header, "the header of a safetensors file is not well formed")                \
  X(safetensors_entry, "a tensor is not described well in the header of its file")            \
  X(safetensors_layout, "the tensors of a file lie outside of it, overlap or leave gaps")     \
  X(tensor_not_found, "a file has no tensor of this name")                                    \
  X(tensor_unexpected, "a file has a tensor that belongs nowhere, or twice")                  \
  X(tensor_damaged, "the checksum of a tensor is wrong")                                      \
  X(tensor_shape, "a tensor has another shape than is needed")                                \
  X(tensor_type, "a tensor has another element type than is needed")                          \
  X(tensor_value, "a tensor holds a value that cannot be")                                    \
  X(tensor_unwritable, "a tensor or its name cannot be written to a file")                    \
                                                                                              \
  T("text and tokenizers")                                                                    \
  X(text_unknown, "there is no built-in text of this name")                                   \
  X(text_empty, "a text has no documents, or none with tokens")                               \
  X(text_too_short, "a text is too short for what is asked")                                  \
  X(text_too_long, "a text, document or prompt is too long")                                  \
  X(text_not_utf8, "a text is not UTF-8")                                                     \
  X(text_field_missing, "a JSON line has no text under the field")                            \
  X(text_changed, "a text is another one than before")                                        \
  X(text_overlap, "evaluation text is also in the text that was learned from (warning)")      \
  X(story_template, "a template of the built-in stories is not well formed")                  \
  X(tokenizer_unknown, "there is no such kind of tokenizer, or no such file")                 \
  X(tokenizer_invalid, "a tokenizer file is not well formed")                                 \
  X(tokenizer_unsupported, "a tokenizer file uses what is not supported here")                \
  X(tokenizer_mismatch, "a tokenizer is not the one that is needed")                          \
  X(token_out_of_range, "a token id is outside of the vocabulary")                            \
  X(token_invalid, "a text is not a token id")                                                \
  X(vocabulary_too_large, "a vocabulary is larger than possible")                             \
  X(vocabulary_size_missed, "a vocabulary has another size than asked for (warning)")         \
  X(token_cache_damaged, "a token cache is damaged")                                          \
                                                                                              \
  T("runs and checkpoints")                                                                   \
  X(run_not_found, "there is no such run")                                                    \
  X(run_invalid, "a folder is not a run")                                                     \
  X(run_exists, "a folder already holds a run")                                               \
  X(run_locked, "another process is training the run")                                        \
  X(run_finished, "a run is finished")                                                        \
  X(run_mismatch, "a run has other settings or data than are asked for")                      \
  X(run_unlisted, "a run is left out of a list (warning)")                                    \
  X(run_settings_changed, "a resumed run has other settings than before (warning)")           \
  X(resume_refused, "a resumed run cannot take this change")                                  \
  X(from_mismatch, "a run cannot begin from the weights of another one")                      \
  X(checkpoint_not_found, "there is no such checkpoint")                                      \
  X(checkpoint_mismatch, "a checkpoint belongs to another recipe or run")                     \
  X(checkpoint_mixed, "the files of a checkpoint belong to different runs or steps")          \
  X(checkpoint_without_optimizer, "a checkpoint has no optimizer state")                      \
  X(checkpoint_unreadable, "a checkpoint cannot be read")                                     \
  X(metrics_damaged, "a metrics file was repaired or lost lines (warning)")                   \
  X(samples_damaged, "saved samples are damaged")                                             \
  X(start_keys_missing, "the keys of step 0 are gone (warning)")                              \
  X(computed_elsewhere, "a run goes on where last bits may differ (warning)")                 \
  X(data_too_few, "the training text is too short for one step")                              \
  X(data_nothing_to_predict, "a text has nothing to predict")                                 \
  X(loss_not_finite, "a loss or score is not a finite number")                                \
                                                                                              \
  T("models, experts and keys")                                                               \
  X(model_mismatch, "weights do not fit the model")                                           \
  X(model_unsuitable, "a model cannot do what is asked")                                      \
  X(experts_missing, "a model has no experts")                                                \
  X(layer_out_of_range, "a model has no such layer")                                          \
  X(expert_out_of_range, "a model has no such expert, or not as many")                        \
  X(window_out_of_range, "a window of tokens is larger than the model reads")                 \
  X(prompt_empty, "a prompt has no token")                                                    \
  X(library_invalid, "an expert library is not well formed or cannot be drawn")               \
  X(library_mismatch, "an expert library does not fit the recipe")                            \
  X(library_slow, "an expert library takes long to draw (warning)")                           \
  X(rule_unknown, "there is no such rule of the keys")                                        \
                                                                                              \
  T("memories")                                                                               \
  X(memory_missing, "there is no memory")                                                     \
  X(memory_invalid, "a memory file is not well formed")                                       \
  X(memory_damaged, "a memory file is damaged")                                               \
  X(memory_mismatch, "a memory belongs to another model or run")                              \
  X(memory_settings, "a memory was made with other settings")                                 \
  X(memory_text_unknown, "a memory has no text of this name, or several")                     \
  X(memory_not_kept, "what a memory learned could not be kept")                               \
                                                                                              \
  T("compressed files")                                                                       \
  X(compressed_invalid, "a compressed file is not well formed, or damaged")                   \
  X(compressed_mismatch, "a compressed file needs another model or another kind of machine")  \
                                                                                              \
  T("series, claims and reports")                                                             \
  X(series_unknown, "there is no series or run of this name")                                 \
  X(claims_invalid, "the texts or claims of the report are not well formed")                  \
  X(data_missing, "the text that runs need is not there")                                     \
                                                                                              \
  T("exported models and fixtures")                                                           \
  X(export_unsupported, "a model cannot be exported in this way")                             \
  X(import_invalid, "a folder or file is not a model that can be imported")                   \
  X(import_mismatch, "a file of an exported model contradicts its recipe")                    \
  X(fixture_invalid, "a fixture is not well formed")                                          \
                                                                                              \
  T("board and server")                                                                       \
  X(request_invalid, "a request to the board is not as it should be")                         \
  X(request_unknown, "the board has no such address")                                         \
  X(request_forbidden, "the board only shows: nothing can be asked")                          \
  X(board_busy, "the board has too much to do")                                               \
  X(server_busy, "the server has as many requests as it accepts")                             \
  X(api_key_invalid, "a request to the server has no valid API key")                          \
  X(address_taken, "another program listens at the address")                                  \
  X(address_unusable, "the board cannot listen at the address")                               \
                                                                                              \
  T("ranks")                                                                                  \
  X(rank_environment, "the environment of a rank makes no sense")                             \
  X(ranks_unsupported, "the command or program does not work on several ranks")               \
  X(ranks_unreachable, "ranks cannot reach each other")                                       \
  X(ranks_differ, "ranks have different settings, data or builds")                            \
  X(ranks_uneven, "ranks cannot share the work evenly")                                       \
  X(rank_transfer, "ranks cannot exchange these rows or numbers")                             \
                                                                                              \
  T("machine")                                                                                \
  X(device_unknown, "there is no such kind of device or precision")                           \
  X(device_unusable, "a device cannot be used")                                               \
  X(precision_unusable, "a device does not compute in this precision")                        \
  X(gpu_failed, "the GPU or one of its libraries failed")                                     \
  X(memory_insufficient, "what is asked for does not fit into memory")                        \
  X(out_of_memory, "no memory is left")                                                       \
  X(system_failed, "the system refused something")                                            \
                                                                                              \
  T("the library itself (a mistake of the program that calls it)")                            \
  X(shape_mismatch, "shapes or sizes do not fit each other")                                  \
  X(type_unsupported, "an element type is not supported here")                                \
  X(index_out_of_range, "an index is out of range")                                           \
  X(size_unsupported, "a size is larger than is supported here")                              \
  X(parameter_unknown, "there is no parameter of this name")                                  \
  X(internal, "a mistake of the program")

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
