#include "board/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "board/own_files.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json.h"
#include "plot/escape_html.h"
#include "recipe/schema.h"
#include "runs/checkpoint.h"
#include "runs/run.h"
#include "runs/run_list.h"
#include "runs/run_lock.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t max_rows_reported = 200;
constexpr std::size_t max_samples_bytes = 4 << 20;  // of one evaluation
constexpr double max_steps = 1e15;  // every integer up to here is exact as a double and fits a step counter

std::string memory_file(const std::string& folder) { return folder + "/memory.safetensors"; }
std::string samples_file(const std::string& folder) { return folder + "/samples.jsonl"; }

// Reads one line of a file; null if it no longer exists.
nlohmann::json line_at(const std::string& path, const LinePlace& place) {
  if (!is_file_not_link(path)) return nullptr;
  try {
    std::string line(place.length, '\0');
    InputFile(path).read_at(place.offset, line.data(), line.size());
    const auto parsed = parse_json_line(line);
    return parsed ? *parsed : nlohmann::json();
  } catch (const Error&) {
    return nullptr;
  }
}

// True for metrics of layers, which are sent on request only; top-level metrics are always sent.
bool is_of_a_layer(const std::string& column) { return column.starts_with("layers."); }

}  // namespace

// A number of a line with its path: "loss", or "gini" or "count" of a layer. The names point into the line.
struct RunLog::Matches {
  std::string_view group, name;
  std::size_t layer = 0;
  int depth = 1;  // 1: of the line, 2: of a layer, 3: of a group of a layer
  double value = 0;
};

class RunLog::Numbers : public JsonVisitor {
 public:
  void number(const JsonPath& path, double value) override {
    if (path.size() == 1)
      found.push_back({{}, path[0].name, 0, 1, value});
    else if (path.size() == 3 && path[0].name == "layers" && !path[2].name.empty())
      found.push_back({{}, path[2].name, path[1].place, 2, value});
    else if (path.size() == 4 && path[0].name == "layers" && !path[2].name.empty() && !path[3].name.empty())
      found.push_back({path[2].name, path[3].name, path[1].place, 3, value});
    else if (path.size() == 3 && path[0].name == "load")
      found.push_back({{}, "load", path[1].place, 3, value});
  }
  void text(const JsonPath& path, std::string_view value) override {
    if (path.size() == 1 && path[0].name == "kind") kind = value;
  }
  double value_of(std::string_view name) const {
    for (const Matches& one : found) {
      if (one.depth == 1 && one.name == name) return one.value;
    }
    return unknown;
  }
  std::vector<Matches> found;
  std::string_view kind;
};

RunLog::RunLog(std::string id, std::string folder, std::string place)
    : id_(std::move(id)),
      folder_(std::move(folder)),
      place_(std::move(place)),
      metrics_(RunPaths{folder_}.metrics()),
      rates_(RunPaths{folder_}.rates()),
      load_(RunPaths{folder_}.load()),
      samples_(samples_file(folder_)) {}

void RunLog::clear_metrics() {
  for (const char* name : {"train", "eval", "epoch"}) tables_[name] = {};
  evaluations_.clear();
  tokens_ = epoch_ = 0;
  reset_ = true;
}

void RunLog::put(Kept& kept, const std::vector<Matches>& numbers, double step, double tokens) {
  kept.table.begin_row(step, tokens);
  std::size_t at = 0;
  for (const Matches& one : numbers) {
    if (one.depth == 1 && (one.name == "step" || one.name == "epoch" || one.name == "stage")) continue;
    if (one.depth > 1 && one.name == "layer") continue;
    // Lines of one kind are mostly alike, so the number at a position of a line is mostly in the same column as in the
    // previous line.
    if (at == kept.memo.size()) kept.memo.emplace_back();
    Memo& memo = kept.memo[at++];
    if (memo.column == nullptr || memo.depth != one.depth || memo.layer != one.layer || memo.name != one.name ||
        memo.group != one.group) {
      memo = {std::string(one.group), std::string(one.name), one.layer, one.depth, nullptr};
      std::string name = memo.name;
      if (one.depth == 2) name = fmt::format("layers.{}.{}", one.layer, name);
      if (one.depth == 3) name = fmt::format("layers.{}.{}.{}", one.layer, memo.group, name);
      memo.column = &kept.table.column(name);
    }
    kept.table.set(*memo.column, one.value);
  }
}

// Converts epochs to tokens; an epoch refers to the text of its stage.
double RunLog::tokens_at(double epoch, std::size_t stage) {
  if (tokens_of_stage_.empty() || !std::isfinite(epoch)) return unknown;
  const std::size_t of = std::min(tokens_of_stage_.size() - 1, stage == 0 ? 0 : stage - 1);
  if (epoch > epoch_) {
    tokens_ += (epoch - epoch_) * tokens_of_stage_[of];
    epoch_ = epoch;
  }
  return tokens_;
}

void RunLog::metrics_line(std::string_view line, std::uint64_t offset) {
  Numbers numbers;
  if (!walk_json(line, numbers)) return;  // truncated or invalid: only the line is skipped, not the run
  const double step = numbers.value_of("step");
  if (!(step >= 0 && step <= max_steps)) return;
  const double stage = numbers.value_of("stage");
  const double tokens =
      tokens_at(numbers.value_of("epoch"),
                std::isfinite(stage) && stage > 0 && stage < 1e6 ? static_cast<std::size_t>(stage) : 0);
  if (numbers.kind != "train" && numbers.kind != "eval" && numbers.kind != "epoch") return;
  put(tables_[std::string(numbers.kind)], numbers.found, step, tokens);
  if (numbers.kind == "eval") evaluations_.push_back({static_cast<std::int64_t>(step), offset, line.size()});
}

// A line of rates.jsonl gives the time since the process started at a step. If a killed run resumes from an earlier
// step, repeated steps count once.
void RunLog::rates_line(std::string_view line) {
  Numbers numbers;
  if (!walk_json(line, numbers)) return;
  const double step = numbers.value_of("step"), seconds = numbers.value_of("seconds");
  if (!std::isfinite(step) || !std::isfinite(seconds)) return;
  Kept& kept = tables_["rates"];
  const std::size_t rows = kept.table.rows();
  const bool another_sitting = rows > 0 && seconds + sitting_before_ < seconds_.back();
  std::size_t stay = rows;
  while (stay > 0 && kept.table.step(stay - 1) >= step) --stay;
  if (stay < rows) {
    kept.table.cut(stay);
    seconds_.resize(stay);
    clock_.resize(stay);
    if (kept.reported > stay) reset_ = true;
  }
  if (rows > 0 && (another_sitting || stay < rows)) sitting_before_ = seconds_.empty() ? 0 : seconds_.back();
  const double operations = numbers.value_of("operations_per_second"), rate = numbers.value_of("matrix_rate");
  std::vector<Matches> found = {{{}, "tokens_per_second", 0, 1, numbers.value_of("tokens_per_second")},
                                {{}, "operations_per_second", 0, 1, operations}};
  if (rate > 0) found.push_back({{}, "share_of_peak", 0, 1, operations / rate});
  // Use of the machine (runtime/machine_use.h), which not every line contains.
  constexpr double gib = 1024.0 * 1024 * 1024;
  const auto add = [&](const char* from, const char* to, double unit) {
    if (const double value = numbers.value_of(from); std::isfinite(value))
      found.push_back({{}, to, 0, 1, value / unit});
  };
  add("cpu_cores", "cpu_cores", 1);
  add("memory_bytes", "memory_gib", gib);
  add("gpu_utilization", "gpu_utilization", 1);
  add("gpu_memory_bytes", "gpu_memory_gib", gib);
  add("gpu_watts", "gpu_watts", 1);
  put(kept, found, step, unknown);
  seconds_.push_back(sitting_before_ + seconds);
  clock_.push_back(numbers.value_of("unix_ms"));
}

void RunLog::load_line(std::string_view line) {
  Numbers numbers;
  if (!walk_json(line, numbers)) return;
  LoadLine one;
  one.step = numbers.value_of("step");
  for (const Matches& number : numbers.found) {
    if (number.depth != 3) continue;
    if (number.layer >= 4096) return;
    if (one.layers.size() <= number.layer) one.layers.resize(number.layer + 1);
    one.layers[number.layer].push_back(static_cast<float>(number.value / 100));
  }
  if (!std::isfinite(one.step) || one.layers.empty()) return;
  while (!loads_.empty() && loads_.back().step >= one.step) loads_.pop_back();
  loads_.push_back(std::move(one));
}

// A line of samples.jsonl contains the texts of one evaluation; only its location is kept.
void RunLog::samples_line(std::string_view line, std::uint64_t offset) {
  Numbers numbers;
  if (line.size() > max_samples_bytes || !walk_json(line, numbers)) return;
  const double step = numbers.value_of("step");
  if (!(step >= 0 && step <= max_steps)) return;
  while (!sample_places_.empty() && static_cast<double>(sample_places_.back().step) >= step) sample_places_.pop_back();
  sample_places_.push_back({static_cast<std::int64_t>(step), offset, line.size()});
}

void RunLog::read_settings() {
  const RunPaths paths{folder_};
  struct stat now {};
  if (::lstat(paths.config().c_str(), &now) != 0 || !S_ISREG(now.st_mode)) return;
  if (now.st_mtim.tv_sec == config_time_.tv_sec && now.st_mtim.tv_nsec == config_time_.tv_nsec) return;
  config_time_ = now.st_mtim;
  version_ += 1;
  try {
    const Recipe recipe = read_run_recipe(folder_);
    settings_ = recipe_settings(recipe);
    title_ = recipe.title;
    run_id_ = recipe.run_id;
    layers_ = recipe.model.ffn == Ffn::some ? recipe.model.layers : 0;
    experts_ = recipe.model.ffn == Ffn::some ? recipe.model.experts : 0;
    total_steps_ = recipe.stages.empty() ? recipe.train.max_steps : 0;
    // Runs that differ only in the seed (and in machine settings) form a group.
    std::string all;
    for (const auto& [key, value] : settings_) {
      if (key != "seed" && !is_left_out_of_comparisons(key)) all += key + "=" + value + "\n";
    }
    group_ = hex(hash_bytes(all.data(), all.size()));
    trouble_.clear();
    tokens_of_stage_.clear();
    if (is_file_not_link(paths.data())) {
      if (const auto data = read_run_data(paths)) {
        if (data->stages.empty()) tokens_of_stage_.push_back(static_cast<double>(data->train.used));
        for (const RunData& stage : data->stages) tokens_of_stage_.push_back(static_cast<double>(stage.train.used));
      }
    }
  } catch (const Error& error) {
    trouble_ = error.what();
  }
}

void RunLog::read_labels() {
  struct stat now {};
  if (::lstat(labels_file(folder_).c_str(), &now) != 0 || !S_ISREG(now.st_mode)) now.st_mtim = {};
  if (now.st_mtim.tv_sec == labels_time_.tv_sec && now.st_mtim.tv_nsec == labels_time_.tv_nsec) return;
  labels_time_ = now.st_mtim;
  version_ += 1;
  try {
    labels_ = now.st_mtim.tv_sec == 0 ? RunLabels{} : read_run_labels(folder_);
  } catch (const Error&) {
    labels_ = {};  // damaged: the folder's name is shown
  }
}

RunLabels RunLog::labels() {
  const std::lock_guard lock(mutex_);
  read_labels();
  return labels_;
}

void RunLog::set_labels(const RunLabels& labels) {
  const std::lock_guard lock(mutex_);
  if (!is_folder_not_link(folder_)) bad_input(Code::run_not_found, "the folder of this run no longer exists");
  if (is_link(labels_file(folder_)))
    bad_input(Code::request_forbidden, "labels.json of this run is a link, which is not followed; remove it");
  write_run_labels(folder_, labels);
  read_labels();
}

// Detects new key positions and memories by modification times: both are written by renaming, which changes the
// folder's time.
void RunLog::look_at_keys() {
  const auto stirred = [](const std::string& path, mode_t kind, struct timespec& before) {
    struct stat now {};
    if (::lstat(path.c_str(), &now) != 0 || (now.st_mode & S_IFMT) != kind) now.st_mtim = {};
    const bool other = now.st_mtim.tv_sec != before.tv_sec || now.st_mtim.tv_nsec != before.tv_nsec;
    before = now.st_mtim;
    return other;
  };
  if (stirred(folder_ + "/keys", S_IFDIR, keys_time_)) {
    key_steps_.clear();
    try {
      if (keys_time_.tv_sec != 0) {
        for (const CheckpointName& one : list_key_positions(folder_)) key_steps_.push_back(one.step);
      }
    } catch (const Error&) {
      keys_time_ = {};  // retried at the next poll
    }
    version_ += 1;
  }
  if (stirred(memory_file(folder_), S_IFREG, memory_time_)) {
    memory_version_ = memory_time_.tv_sec == 0 ? 0 : memory_version_ + 1;
    version_ += 1;
  }
}

std::string RunLog::memory() const {
  const std::lock_guard lock(mutex_);
  return memory_version_ == 0 ? "" : memory_file(folder_);
}

void RunLog::look_at_state(bool changed) {
  const auto now = Clock::now();
  // The state of a running run is checked every second; that of a finished one only after a change.
  if (!changed && now - state_when_ < std::chrono::seconds(1)) return;
  if (!changed && final_ && !run_is_locked(folder_)) {
    state_when_ = now;
    return;
  }
  state_when_ = now;
  std::string state = "unreadable", recipe;
  int seed = 0;
  try {
    if (const auto found = find_run(folder_)) {
      if (!found_ || found_->saved_step != found->saved_step) version_ += 1;
      found_ = found;
      state = found->state_text();
      final_ = found->state != RunState::running;
      recipe = found->identity.recipe;
      seed = found->identity.seed;
    }
  } catch (const Error& error) {
    trouble_ = error.what();
    final_ = true;
  }
  if (state == state_ && recipe == recipe_ && seed == seed_) return;
  state_ = state;
  recipe_ = recipe;
  seed_ = seed;
  version_ += 1;
}

bool RunLog::poll() {
  const std::lock_guard lock(mutex_);
  // Idle runs are polled about once per second.
  const auto now = Clock::now();
  if (final_ && now - stirred_ > std::chrono::seconds(10) && now - polled_ < std::chrono::milliseconds(700))
    return false;
  polled_ = now;
  read_settings();
  read_labels();
  bool changed = metrics_.poll(
      {[&](std::string_view line, std::uint64_t offset) { metrics_line(line, offset); }, [&] { clear_metrics(); }});
  changed |= rates_.poll({[&](std::string_view line, std::uint64_t) { rates_line(line); },
                          [&] {
                            tables_["rates"] = {};
                            seconds_.clear();
                            clock_.clear();
                            sitting_before_ = 0;
                            reset_ = true;
                          }});
  changed |= load_.poll({[&](std::string_view line, std::uint64_t) { load_line(line); }, [&] { loads_.clear(); }});
  changed |= samples_.poll({[&](std::string_view line, std::uint64_t offset) { samples_line(line, offset); },
                            [&] { sample_places_.clear(); }});
  if (changed) {
    version_ += 1;
    stirred_ = now;
  }
  look_at_keys();
  look_at_state(changed);
  return version_ != reported_version_;
}

nlohmann::json RunLog::news() {
  nlohmann::json out{{"run", summary()}};
  const std::lock_guard lock(mutex_);
  nlohmann::json tables = nlohmann::json::object();
  bool reset = reset_;
  for (auto& [name, kept] : tables_) {
    const std::size_t rows = kept.table.rows();
    if (kept.reported > rows || rows - kept.reported > max_rows_reported) reset = true;
  }
  for (auto& [name, kept] : tables_) {
    const std::size_t rows = kept.table.rows();
    nlohmann::json list = nlohmann::json::array();
    for (std::size_t row = kept.reported; row < rows && !reset; ++row) {
      nlohmann::json values = nlohmann::json::object();
      for (const auto& [column, numbers] : kept.table.columns()) {
        const double value = kept.table.value(numbers, row);
        if (!is_of_a_layer(column) && std::isfinite(value)) values[column] = value;
      }
      const auto number = [](double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); };
      const double step = kept.table.step(row);
      list.push_back({number(step), number(tokens_of(kept.table, row)), number(seconds_at(step)), std::move(values)});
    }
    if (!list.empty()) tables[name] = {{"first", kept.reported}, {"rows", std::move(list)}};
    kept.reported = rows;
  }
  if (reset)
    out["reset"] = true;
  else if (!tables.empty())
    out["tables"] = std::move(tables);
  reset_ = false;
  reported_version_ = version_;
  return out;
}

nlohmann::json RunLog::summary() const {
  const std::lock_guard lock(mutex_);
  const auto text = [](const std::string& words) { return valid_text(words); };
  const std::size_t slash = place_.find_last_of('/');
  nlohmann::json metrics = nlohmann::json::array();
  double step = 0;
  for (const auto& [name, kept] : tables_) {
    for (const auto& [column, numbers] : kept.table.columns()) {
      // A single epoch is a point, not a curve.
      if (!is_of_a_layer(column) && (name != "epoch" || kept.table.rows() > 1)) metrics.push_back(name + "." + column);
    }
    if (kept.table.rows() > 0) step = std::max(step, kept.table.step(kept.table.rows() - 1));
  }
  const std::string folder_name = slash == std::string::npos ? place_ : place_.substr(slash + 1);
  nlohmann::json out{{"id", id_},
                     {"name", text(labels_.name.empty() ? folder_name : labels_.name)},
                     {"folder", text(folder_name)},
                     {"place", text(place_)},
                     {"title", text(title_)},
                     {"state", state_},
                     {"step", found_ ? static_cast<double>(found_->step(static_cast<std::int64_t>(step))) : step},
                     {"group", group_},
                     {"recipe", text(recipe_)},
                     {"layers", layers_},
                     {"experts", experts_},
                     {"metrics", metrics},
                     {"version", version_}};
  out["key_steps"] = key_steps_.size();
  out["memory"] = memory_version_;
  out["samples"] = sample_places_.size();
  if (!labels_.tags.empty()) out["tags"] = labels_.tags;
  if (!labels_.note.empty()) out["note"] = labels_.note;
  if (total_steps_ > 0) out["steps"] = total_steps_;
  if (!trouble_.empty()) out["trouble"] = text(trouble_);
  if (const auto found = settings_.find("seed"); found != settings_.end()) out["seed"] = found->second;
  if (!seconds_.empty()) out["seconds"] = seconds_.back();
  const auto last = [&](const char* table, const char* column, const char* name) {
    const auto found = tables_.find(table);
    if (found == tables_.end()) return;
    const CurveTable::Column* numbers = found->second.table.find(column);
    if (numbers != nullptr && !numbers->empty() && std::isfinite(numbers->back())) out[name] = numbers->back();
  };
  last("eval", "loss", "loss");
  last("eval", "bits_per_byte", "bits_per_byte");
  last("train", "loss", "train_loss");
  last("rates", "tokens_per_second", "tokens_per_second");
  return out;
}

std::map<std::string, std::string> RunLog::settings() const {
  const std::lock_guard lock(mutex_);
  return settings_;
}

std::size_t RunLog::rows(const std::string& metric) const {
  const std::lock_guard lock(mutex_);
  std::string column;
  const Kept* kept = table_of(metric, column);
  return kept == nullptr ? 0 : kept->table.rows();
}

std::int64_t RunLog::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

std::string RunLog::run_id() const {
  const std::lock_guard lock(mutex_);
  return run_id_;
}

int RunLog::layers() const {
  const std::lock_guard lock(mutex_);
  return layers_;
}

int RunLog::experts() const {
  const std::lock_guard lock(mutex_);
  return experts_;
}

std::vector<RunLog::Load> RunLog::load(int layer) const {
  const std::lock_guard lock(mutex_);
  std::vector<Load> out;
  for (const LoadLine& line : loads_) {
    if (static_cast<std::size_t>(layer) < line.layers.size())
      out.push_back({line.step, line.layers[static_cast<std::size_t>(layer)]});
  }
  return out;
}

std::vector<LinePlace> RunLog::evaluations() const {
  const std::lock_guard lock(mutex_);
  return evaluations_;
}

nlohmann::json RunLog::evaluation(const LinePlace& place) const { return line_at(RunPaths{folder_}.metrics(), place); }

std::vector<LinePlace> RunLog::samples() const {
  const std::lock_guard lock(mutex_);
  return sample_places_;
}

nlohmann::json RunLog::sample(const LinePlace& place) const { return line_at(samples_file(folder_), place); }

}  // namespace some
