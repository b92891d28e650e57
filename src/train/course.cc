#include "train/course.h"

#include "base/error.h"
#include "train/forecast.h"
#include "train/run.h"

namespace some::train {
namespace {

void check_enough_text(std::int64_t sequences, const Recipe& recipe) {
  const TrainConfig& train = recipe.train;
  if (sequences / train.batch / train.accumulate > 0) return;
  const bool cut = recipe.data.long_documents == LongDocuments::cut;
  bad_input(
      "data.train gives {} sequences of at most model.seq_len = {} tokens, fewer than one step needs (train.batch {} x "
      "train.accumulate {}): lower train.batch{}, or bring more text",
      sequences, recipe.model.seq_len, train.batch, train.accumulate,
      cut ? ", say data.long = \"split\" so that long documents give several" : " or model.seq_len");
}

}  // namespace

void check_recipe(const Host& host, const Recipe& recipe) {
  check_config(recipe.model);
  const Forecast forecast = forecast_run(host, recipe);
  check_memory(forecast);
  if (forecast.text) check_enough_text(forecast.most_sequences, recipe);
}

Course prepare_course(const Host& host, const Recipe& recipe, const std::string& tokenizer, const std::string& cache,
                      const DataProgress& progress) {
  DataConfig data = recipe.data;
  if (!tokenizer.empty()) data.tokenizer = tokenizer;
  Corpora corpora = load_corpora(host, data, recipe.seed, cache, progress);
  Course course{recipe, corpora.tokenizer, corpora.train, corpora.valid, {}, {}};
  course.recipe.model.vocab = course.tokenizer.vocab_size();
  course.batches.seq_len = recipe.model.seq_len;
  course.batches.count_pads = recipe.data.count_pads;
  course.batches.pad_id = course.tokenizer.pad_id();
  course.batches.eos_id = course.tokenizer.eos_id();
  course.batches.long_documents = recipe.data.long_documents;
  course.evaluation = evaluate_options(recipe, course.tokenizer);
  const TrainConfig& train = recipe.train;
  course.use.train = use_of(course.train, recipe.model.seq_len, recipe.data.long_documents);
  course.use.valid = use_of(course.valid, recipe.model.seq_len, recipe.data.long_documents);
  host.log.info("training text: {}", describe(course.use.train, recipe.model.seq_len));
  host.log.info("validation text: {}", describe(course.use.valid, recipe.model.seq_len));
  const std::int64_t sequences = course.use.train.sequences;
  check_enough_text(sequences, recipe);
  course.steps_per_epoch = sequences / train.batch / train.accumulate;
  course.spare = sequences / train.batch - course.steps_per_epoch * train.accumulate;
  course.steps = course.steps_per_epoch * train.epochs;
  if (train.max_steps > 0) course.steps = std::min(course.steps, train.max_steps);
  return course;
}

}  // namespace some::train
