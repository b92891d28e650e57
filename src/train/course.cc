#include "train/course.h"

#include "base/error.h"
#include "train/forecast.h"
#include "train/run.h"

namespace some::train {
namespace {

void check_enough_stories(std::int64_t stories, const TrainConfig& train) {
  if (stories / train.batch / train.accumulate > 0) return;
  bad_input(
      "data.train holds {} stories, fewer than one step needs (train.batch {} x train.accumulate {}): lower "
      "train.batch, bring more text, or name the line between its stories with data.separator",
      stories, train.batch, train.accumulate);
}

}  // namespace

void check_recipe(const Host& host, const Recipe& recipe) {
  check_config(recipe.model);
  const Forecast forecast = forecast_run(host, recipe);
  check_memory(forecast);
  if (forecast.data.train_stories > 0) check_enough_stories(forecast.data.train_stories, recipe.train);
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
  course.evaluation = evaluate_options(recipe, course.tokenizer);
  const TrainConfig& train = recipe.train;
  check_enough_stories(course.train.stories(), train);
  course.steps_per_epoch = course.train.stories() / train.batch / train.accumulate;
  course.spare = course.train.stories() / train.batch - course.steps_per_epoch * train.accumulate;
  course.steps = course.steps_per_epoch * train.epochs;
  if (train.max_steps > 0) course.steps = std::min(course.steps, train.max_steps);
  return course;
}

}  // namespace some::train
