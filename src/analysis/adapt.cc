#include "analysis/adapt.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/assignments.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "inference/key_learner.h"
#include "runs/checkpoint.h"
#include "runs/new_folder.h"

namespace some {
namespace {

// Part of a document that the model reads starting at position 0.
struct Piece {
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> bytes;
};

// Cuts a document into pieces. Each piece begins with the last token of the previous one, so that every token but a
// document's first is predicted once.
void split_document(std::span<const std::int32_t> ids, std::span<const std::uint16_t> bytes, std::size_t seq_len,
                    std::vector<Piece>& out) {
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += seq_len - 1) {
    const std::size_t end = std::min(ids.size(), begin + seq_len);
    out.push_back(
        {{ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(end)},
         {bytes.begin() + static_cast<std::ptrdiff_t>(begin), bytes.begin() + static_cast<std::ptrdiff_t>(end)}});
    if (end == ids.size()) break;
  }
}

TokenData data_of(std::span<const Piece> pieces) {
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::vector<std::uint32_t>> bytes;
  for (const Piece& piece : pieces) {
    ids.push_back(piece.ids);
    bytes.push_back(piece.bytes);
  }
  return make_token_data(ids, bytes);
}

struct NewText {
  std::vector<Piece> stream, held_out;
  std::int64_t documents = 0;
};

NewText read_new_text(const OpenedRun& run, const AdaptOptions& options) {
  if (options.data.empty())
    bad_input(Code::argument_missing, "no text to adapt to; use --data with a file, a folder or builtin:DOMAIN");
  if (options.max_documents < 0)
    bad_input(Code::option_invalid, "{} {}: must be >= 0 (0 = all)", "--max-documents", options.max_documents);
  const TokenData data =
      load_tokens(*run.ctx, options.data, run.recipe.data, run.tokenizer, options.max_documents, run.paths.cache());
  const auto seq_len = static_cast<std::size_t>(run.recipe.model.seq_len);
  if (seq_len < 2)
    bad_input(Code::model_unsuitable,
              "model.seq_len = 1: a sequence of one token predicts nothing; use a run with a longer context");
  NewText text;
  text.documents = data.documents();
  const TokenId unknown = run.tokenizer.unk_id(), eos = run.tokenizer.eos_id();
  bool known = false;
  for (std::int64_t i = 0; i < data.documents() && !known; ++i) {
    for (const std::int32_t id : data.ids(i)) known = known || (id != unknown && id != eos);
  }
  if (!known)
    bad_input(Code::data_nothing_to_predict,
              "{} has no token in the vocabulary of the run; use text similar to its training text", options.data);
  if (data.documents() > 1) {
    const std::int64_t held = std::max<std::int64_t>(1, data.documents() / 5);
    for (std::int64_t i = 0; i < data.documents(); ++i)
      split_document(data.ids(i), data.bytes(i), seq_len, i < data.documents() - held ? text.stream : text.held_out);
  } else {
    // Single document: its last fifth is held out.
    const std::vector<std::int32_t> all_ids = data.ids(0);
    const std::vector<std::uint16_t> all_bytes = data.bytes(0);
    const std::span ids(all_ids);
    const std::span bytes(all_bytes);
    const std::size_t at = ids.size() - ids.size() / 5;
    split_document(ids.subspan(0, at), bytes.subspan(0, at), seq_len, text.stream);
    split_document(ids.subspan(at), bytes.subspan(at), seq_len, text.held_out);
  }
  if (text.stream.empty() || text.held_out.empty()) {
    bad_input(Code::text_too_short,
              "{} is too short: two documents of at least two tokens, or one of ten, are required to hold a part out",
              options.data);
  }
  return text;
}

class Streamer {
 public:
  // learner: null for the frozen control.
  Streamer(OpenedRun& run, const AdaptOptions& options, KeyLearner* learner,
           std::function<void(std::int64_t tokens)> after_window)
      : run_(run), model_(*run.model), options_(options), learner_(learner), after_window_(std::move(after_window)) {}

  std::vector<StreamWindow> read(const std::vector<Piece>& stream) {
    if (options_.window > 0 && options_.window < run_.recipe.model.seq_len)
      read_on(stream);
    else
      read_batches(stream);
    if (current_.tokens > 0) close_window();
    return std::move(windows_);
  }

 private:
  void close_window() {
    if (!std::isfinite(current_.nll)) throw LossNotFinite(current_.nll);
    if (learner_) learner_->update();
    windows_.push_back(current_);
    done_ += current_.tokens;
    current_ = {};
    if (after_window_) after_window_(done_);
  }

  // Reads whole pieces, one window per update, in batches.
  void read_batches(const std::vector<Piece>& stream) {
    BatchOptions batch_options;
    batch_options.seq_len = run_.recipe.model.seq_len;
    batch_options.pad_id = run_.tokenizer.pad_id();
    batch_options.eos_id = run_.tokenizer.eos_id();
    // A long window is read in several passes whose sums are added.
    const auto most = static_cast<std::size_t>(run_.recipe.train.batch);
    for (std::size_t first = 0; first < stream.size();) {
      std::size_t last = first;
      std::int64_t tokens = current_.tokens;
      while (last < stream.size() && last - first < most && (options_.window == 0 || tokens < options_.window))
        tokens += static_cast<std::int64_t>(stream[last++].ids.size()) - 1;
      const TokenData data = data_of(std::span(stream).subspan(first, last - first));
      std::vector<std::int64_t> rows(last - first);
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
      const Batch batch = make_batch(data, rows, batch_options);
      model_.context().arena->reset();
      const DeviceBatch device_batch = upload(model_.context(), batch);
      LayerObserver observe;
      if (learner_)
        observe = [&](int layer, const RouterTape& tape) { learner_->observe(layer, tape, &device_batch.targets); };
      const std::vector<double> nll = read_vector(model_.evaluate(device_batch, {}, {observe}));
      for (std::size_t t = 0; t < nll.size(); ++t) current_.nll += batch.targets[t] < 0 ? 0.0 : nll[t];
      current_.tokens += batch.predicted;
      current_.bytes += batch.real_bytes;
      if (learner_) learner_->pass_done(batch.size());
      first = last;
      if (current_.tokens > 0 && (options_.window == 0 || current_.tokens >= options_.window)) close_window();
    }
  }

  // Reads one piece after another in windows shorter than seq_len, with the attention cache.
  void read_on(const std::vector<Piece>& stream) {
    Context& ctx = model_.context();
    const auto vocab = static_cast<std::size_t>(model_.config().vocab);
    for (const Piece& piece : stream) {
      Model::Cache cache = model_.make_cache(1, static_cast<std::int64_t>(piece.ids.size()));
      const std::size_t predicted = piece.ids.size() - 1;
      for (std::size_t at = 0; at < predicted;) {
        const std::size_t count = std::min(predicted - at, static_cast<std::size_t>(options_.window - current_.tokens));
        std::vector<std::int32_t> tokens(piece.ids.begin() + static_cast<std::ptrdiff_t>(at),
                                         piece.ids.begin() + static_cast<std::ptrdiff_t>(at + count)),
            slots(count, 0), places, wanted;
        for (std::size_t i = 0; i < count; ++i) {
          places.push_back(static_cast<std::int32_t>(at + i));
          wanted.push_back(static_cast<std::int32_t>(i));
        }
        ctx.arena->reset();
        LayerObserver observe;
        if (learner_) observe = [&](int layer, const RouterTape& tape) { learner_->observe(layer, tape, nullptr); };
        const std::vector<double> logits =
            read_vector(model_.decode(cache, tokens, slots, places, wanted, {}, {observe}));
        for (std::size_t i = 0; i < count; ++i) {
          const double* row = logits.data() + i * vocab;
          const double largest = *std::max_element(row, row + vocab);
          double sum = 0;
          for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - largest);
          current_.nll += largest + std::log(sum) - row[piece.ids[at + i + 1]];
          current_.bytes += piece.bytes[at + i + 1];
        }
        current_.tokens += static_cast<std::int64_t>(count);
        if (learner_) learner_->pass_done(static_cast<std::int64_t>(count));
        at += count;
        if (current_.tokens >= options_.window) close_window();
      }
    }
  }

  OpenedRun& run_;
  Model& model_;
  const AdaptOptions& options_;
  KeyLearner* learner_;
  std::function<void(std::int64_t)> after_window_;
  StreamWindow current_;
  std::vector<StreamWindow> windows_;
  std::int64_t done_ = 0;
};

const std::vector<std::string> files_of_adapted_run = {"tokenizer.json", "checkpoints",   "keys",
                                                       "adapt.html",     "metrics.jsonl", "config.toml"};

void save_adapted(AtomicFolder& out, OpenedRun& run, std::int64_t step, const AdaptReport& report) {
  const RunPaths paths{out.folder()};
  write_file_atomic(paths.tokenizer(), read_file(run.paths.tokenizer()));
  // "finished": there are no optimizer moments from which training could resume.
  run.recipe.run_id = new_run_id("adapt", *run.model, run.tokenizer);
  save_checkpoint(paths.folder, identity_of(run.recipe, run.tokenizer), step, *run.model,
                  {{"finished", true}, {"adapted_from", run.paths.folder}, {"step", step}});
  save_key_positions(paths.folder, run.recipe.run_id, step, *run.model);
  nlohmann::json line{{"kind", "adapt"}, {"step", step}};
  line.update(to_json(report));
  write_file_atomic(paths.folder + "/adapt.html", adapt_page(report, run));
  write_file_atomic(paths.metrics(), line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  write_file_atomic(paths.config(), write_recipe(run.recipe));
  out.finish();
}

}  // namespace

double StreamWindow::loss() const { return tokens > 0 ? nll / static_cast<double>(tokens) : 0; }

double StreamWindow::bits_per_byte() const { return bytes > 0 ? nll / static_cast<double>(bytes) / std::log(2.0) : 0; }

StreamWindow StreamReading::all() const {
  StreamWindow sum;
  for (const StreamWindow& window : windows) {
    sum.tokens += window.tokens;
    sum.bytes += window.bytes;
    sum.nll += window.nll;
  }
  return sum;
}

AdaptReport adapt_run(OpenedRun& run, const AdaptOptions& options) {
  require_experts(run, "adapt");
  if (options.window < 0)
    bad_input(Code::option_invalid, "{} {}: must be 0 (batches as in training) or a number of tokens", "--window",
              options.window);
  if (options.frozen && !options.rules.empty())
    bad_input(Code::option_conflict, "{} cannot be combined with --rules: frozen keys follow no rule", "--frozen");
  if (options.frozen && !options.out.empty())
    bad_input(Code::option_conflict, "{} with --frozen would only copy the run: frozen keys do not change", "--out");
  const KeySettings settings = choose_rules(run.recipe.model.keys, options.rules);
  std::optional<AtomicFolder> out;
  if (!options.out.empty()) out.emplace("--out", options.out, files_of_adapted_run);
  Model& model = *run.model;
  const NewText text = read_new_text(run, options);
  const TokenData original = load_analysis_text(run, "", 0).data, held_out = data_of(text.held_out);
  std::int64_t total = 0;
  for (const Piece& piece : text.stream) total += static_cast<std::int64_t>(piece.ids.size()) - 1;
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  how.max_documents = options.max_eval_documents;
  const auto tell = [&](const char* what, std::int64_t done) {
    if (options.progress) options.progress(what, done, total);
  };

  AdaptReport report;
  report.run = run.paths.folder;
  report.data = options.data;
  report.rules = options.frozen ? "none" : rules_text(settings);
  report.from_step = run.step;
  report.window_tokens = options.window;
  if (options.window == 0) report.window_pieces = run.recipe.train.batch;
  report.uniform_loss = std::log(static_cast<double>(run.recipe.model.vocab));
  report.documents = text.documents;
  report.tokens = total;
  report.pieces = std::ssize(text.stream);
  report.held_out_pieces = std::ssize(text.held_out);
  report.longest_piece = run.recipe.model.seq_len;
  report.original.before = evaluate(model, original, how);
  report.held_out.before = evaluate(model, held_out, how);

  const KeySnapshot start(model);
  report.frozen.windows =
      Streamer(run, options, nullptr, [&](std::int64_t done) { tell("frozen twin", done); }).read(text.stream);
  report.keys_identical = start.bitwise_equal(model);
  if (options.frozen) return report;

  // The id of the new run is a hash of the adapted model, which does not exist yet.
  if (out) save_key_positions(out->folder(), "", run.step, model);
  for (const Layer& layer : model.layers()) {
    AdaptedLayer& one = report.layers.emplace_back();
    one.layer = layer.index;
    one.usage_before = usage_measures(read_vector(layer.keys.usage));
  }
  std::int64_t positions_saved = 0;
  {
    KeyLearner learner(model, settings, run.step);
    report.active.emplace();
    report.active->windows = Streamer(run, options, &learner, [&](std::int64_t done) {
                               tell("learning keys", done);
                               // Saves the positions ten times during reading, to plot the movement of the keys.
                               if (!out || done * 10 / total <= positions_saved || done >= total) return;
                               positions_saved = done * 10 / total;
                               save_key_positions(out->folder(), "", run.step + learner.updates(), model);
                             }).read(text.stream);
    report.updates = learner.updates();
  }
  report.original.after = evaluate(model, original, how);
  report.held_out.after = evaluate(model, held_out, how);
  for (const Layer& layer : model.layers()) {
    AdaptedLayer& one = report.layers[static_cast<std::size_t>(layer.index)];
    const KeySnapshot::Distance moved = start.distance(model, layer.index);
    one.moved_mean = moved.mean;
    one.moved_most = moved.most;
    one.usage_after = usage_measures(read_vector(layer.keys.usage));
    const std::vector<double> counts = read_vector(layer.keys.counts);
    one.births = counts[0];
    one.deaths = counts[1];
  }
  if (out) {
    save_adapted(*out, run, run.step + report.updates, report);
    report.out = options.out;
    report.out_step = run.step + report.updates;
  }
  return report;
}

}  // namespace some
