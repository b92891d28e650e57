#include "lab/samples.h"

#include <filesystem>
#include <optional>

#include "analysis/assignments.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json.h"
#include "core/log.h"
#include "inference/generate.h"
#include "runs/checkpoint.h"
#include "runs/run.h"

namespace some {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr int version = 1;  // version of samples.json, changed with the prompts or settings
constexpr std::int64_t new_tokens = 60;
constexpr std::size_t traced_tokens = 32;
// Frozen experts are regenerated when a model is opened; above this size a CPU needs minutes and gigabytes.
constexpr std::int64_t max_parameters_on_a_cpu = 1'000'000'000;
const std::vector<std::string> prompts = {"One morning a small", "The old dog looked at"};

json to_json(const RunSamples& samples) {
  json out{{"version", version},
           {"step", samples.step},
           {"layer", samples.layer},
           {"samples", json::array()},
           {"trace", json::array()}};
  for (const Sample& one : samples.samples)
    out["samples"].push_back({{"prompt", one.prompt}, {"how", one.how}, {"text", one.text}});
  for (const TracedToken& one : samples.trace)
    out["trace"].push_back({{"token", one.token}, {"experts", one.experts}, {"gates", one.gates}});
  return out;
}

std::string checksum_of(json stored) {
  stored.erase("checksum");
  const std::string text = stored.dump(-1, ' ', false, json::error_handler_t::replace);
  return hex(some::checksum_of(text.data(), text.size()));
}

// Returns the content of samples.json if it was written by this version for this step.
std::optional<RunSamples> read_samples(const std::string& path, std::optional<std::int64_t> step, const Log& log) {
  const JsonObject stored(parse_json(read_file(path), path), path);
  // Verifies the checksum first: a damaged version or step must not be mistaken for another one.
  if (!stored.has("checksum"))
    log.warning(Code::checksum_missing,
                "{} was written by an older version without a checksum, so damage cannot be detected", path);
  else if (checksum_of(stored.json()) != stored.need<std::string>("checksum"))
    bad_input(Code::samples_damaged, "{}: damaged (its checksum does not match)", path);
  if (stored.get<int>("version", 0) != version) return std::nullopt;
  RunSamples samples;
  samples.step = stored.need<std::int64_t>("step");
  if (step && samples.step != *step) return std::nullopt;
  samples.layer = stored.need<int>("layer");
  for (const JsonObject& one : stored.objects("samples"))
    samples.samples.push_back(
        {one.need<std::string>("prompt"), one.need<std::string>("how"), one.need<std::string>("text")});
  for (const JsonObject& one : stored.objects("trace")) {
    samples.trace.push_back({one.need<std::string>("token"), one.need<std::vector<int>>("experts"),
                             one.need<std::vector<double>>("gates")});
    if (samples.trace.back().experts.size() != samples.trace.back().gates.size())
      one.wrong("gates", "as many numbers as `experts`");
  }
  return samples;
}

void trace(OpenedRun& run, const Generated& generated, RunSamples& samples) {
  if (run.recipe.model.ffn != Ffn::some) return;
  std::vector<TokenId> ids = generated.prompt;
  ids.insert(ids.end(), generated.tokens.begin(), generated.tokens.end());
  if (ids.size() > traced_tokens) ids.resize(traced_tokens);
  CollectOptions options;
  options.pad_id = run.tokenizer.pad_id();
  options.eos_id = run.tokenizer.eos_id();
  const Choices choices =
      collect_assignments(*run.model, make_token_data({std::vector<std::int32_t>(ids.begin(), ids.end())}), options);
  samples.layer = run.recipe.model.layers / 2;
  const LayerAssignments& layer = choices.layers.at(static_cast<std::size_t>(samples.layer));
  const auto k = static_cast<std::size_t>(choices.top_k);
  for (std::size_t t = 0; t < choices.tokens.size(); ++t) {
    TracedToken token;
    token.token = run.tokenizer.token_bytes(choices.tokens[t]);
    for (std::size_t i = 0; i < k; ++i) {
      token.experts.push_back(layer.experts.at(t * k + i));
      token.gates.push_back(layer.gates.at(t * k + i));
    }
    samples.trace.push_back(std::move(token));
  }
}

RunSamples write_samples(const RunHistory& history, const DeviceChoice& device, const Host& host) {
  OpenedRun run = open_run(history.found.folder, {"latest", device, std::nullopt, host});
  RunSamples samples;
  samples.step = run.step;
  GenerateOptions options;
  options.max_tokens = std::min<std::int64_t>(new_tokens, run.recipe.model.seq_len / 2);
  options.temperature = 0;
  const std::vector<Generated> likeliest = generate(*run.model, run.tokenizer, {prompts[0]}, options);
  samples.samples.push_back({prompts[0], "greedy (most likely token)", likeliest[0].text});
  options.temperature = 0.8;
  for (const Generated& one : generate(*run.model, run.tokenizer, prompts, options)) {
    samples.samples.push_back({prompts[samples.samples.size() - 1], "sampled at temperature 0.8", one.text});
  }
  trace(run, likeliest[0], samples);
  return samples;
}

}  // namespace

RunSamples sample_run(const RunHistory& run, const DeviceChoice& device, const Host& host) {
  RunSamples samples;
  const auto checkpoints = list_checkpoints(run.found.folder);
  if (!run.recipe.model.causal) {
    samples.skipped = "none (a model without a causal mask cannot generate text)";
    return samples;
  }
  const std::string kept = (fs::path(run.found.folder) / "samples.json").string();
  if (exists_path(kept)) {
    const auto step = checkpoints.empty() ? std::nullopt : std::optional(checkpoints.back().step);
    try {
      if (auto found = read_samples(kept, step, host.log)) return *found;
    } catch (const Error& error) {
      host.log.warning(Code::samples_damaged, "{}; the samples are {}", error.what(),
                       checkpoints.empty() ? "omitted" : "generated again");
    }
  }
  if (checkpoints.empty()) {
    samples.skipped = "none (no checkpoint in the run folder)";
    return samples;
  }
  if (choose_device(device).kind == DeviceKind::cpu && run.parameters.total > max_parameters_on_a_cpu) {
    samples.skipped = fmt::format(
        "omitted: opening {:.1f} billion parameters on a CPU takes long; create the report once with --device cuda, "
        "which caches them in the run folder",
        static_cast<double>(run.parameters.total) / 1e9);
    return samples;
  }
  try {
    samples = write_samples(run, device, host);
    json stored = to_json(samples);
    stored["checksum"] = checksum_of(stored);
    write_output_file(kept, stored.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  } catch (const Error& error) {
    samples.skipped = std::string("none: ") + error.what();
    host.log.warning(Code::samples_damaged, "{}: samples omitted: {}", run.found.folder, error.what());
  }
  return samples;
}

}  // namespace some
