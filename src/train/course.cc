#include "train/course.h"

#include <algorithm>

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

Course make_course(const Host& host, const Recipe& recipe, const std::string& title, const Corpora& corpora) {
  Course course{title, recipe, corpora.tokenizer, corpora.train, corpora.valid, {}, {}, {}};
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
  const std::string of = title.empty() ? "" : title + ": ";
  host.log.info("{}training text: {}", of, describe(course.use.train, recipe.model.seq_len));
  host.log.info("{}validation text: {}", of, describe(course.use.valid, recipe.model.seq_len));
  const std::int64_t sequences = course.use.train.sequences;
  check_enough_text(sequences, recipe);
  course.steps_per_epoch = sequences / train.batch / train.accumulate;
  course.spare = sequences / train.batch - course.steps_per_epoch * train.accumulate;
  course.steps = course.steps_for(train);
  return course;
}

// A message about one stage says which one it is.
template <typename Work>
void in_stage(const Recipe& recipe, std::size_t stage, const Work& work) {
  if (recipe.stages.empty()) return work();
  try {
    work();
  } catch (const Error& error) {
    throw Error(error.fault(), fmt::format("stage {} ({}): {}", stage + 1, stage_name(recipe, stage), error.what()));
  }
}

}  // namespace

std::int64_t Course::steps_for(const TrainConfig& train) const {
  const std::int64_t all = steps_per_epoch * train.epochs;
  return train.max_steps > 0 ? std::min(all, train.max_steps) : all;
}

RunData use_of_texts(const std::vector<Course>& courses) {
  if (courses.size() == 1 && courses[0].title.empty()) return courses[0].use;
  RunData all;
  const auto add = [](DataUse& sum, const DataUse& one) {
    sum.documents += one.documents;
    sum.tokens += one.tokens;
    sum.used += one.used;
    sum.sequences += one.sequences;
  };
  for (const Course& course : courses) {
    add(all.train, course.use.train);
    add(all.valid, course.use.valid);
    all.stages.push_back(course.use);
  }
  return all;
}

void check_recipe(const Host& host, const Recipe& recipe) {
  const std::vector<Recipe> stages = stage_recipes(recipe);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    in_stage(recipe, i, [&] {
      check_config(stages[i].model);
      const Forecast forecast = forecast_run(host, stages[i]);
      check_memory(forecast);
      if (forecast.text) check_enough_text(forecast.most_sequences, stages[i]);
    });
  }
}

std::vector<Course> prepare_courses(const Host& host, const Recipe& recipe, const std::string& tokenizer,
                                    const std::string& cache, const DataProgress& progress) {
  const std::vector<Recipe> stages = stage_recipes(recipe);
  std::vector<DataConfig> texts;
  for (const Recipe& stage : stages) {
    texts.push_back(stage.data);
    if (!tokenizer.empty()) texts.back().tokenizer = tokenizer;
  }
  std::vector<Corpora> corpora;
  std::optional<Tokenizer> given;
  const auto load = [&] { corpora = load_corpora(host, texts, recipe.seed, cache, progress, given); };
  std::string vocabulary;
  host.group.all_or_none([&] {
    if (!host.group.root()) return;
    load();
    if (!host.group.alone()) vocabulary = corpora.at(0).tokenizer.to_json();
  });
  host.group.broadcast(vocabulary);
  std::vector<Course> courses;
  host.group.all_or_none([&] {
    if (!host.group.root()) {
      given = Tokenizer::from_json(vocabulary, "the tokenizer of rank 0");
      load();
    }
    for (std::size_t i = 0; i < stages.size(); ++i) {
      in_stage(recipe, i, [&] {
        courses.push_back(make_course(host, stages[i], recipe.stages.empty() ? "" : stage_name(recipe, i), corpora[i]));
      });
    }
  });
  return courses;
}

}  // namespace some::train
