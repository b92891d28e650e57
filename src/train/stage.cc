#include "train/stage.h"

#include <algorithm>

#include "core/error.h"
#include "runs/forecast.h"
#include "runs/run.h"

namespace some {
namespace {

void check_enough_text(std::int64_t sequences, const Recipe& recipe) {
  const TrainConfig& train = recipe.train;
  if (sequences / train.batch / train.accumulate > 0) return;
  const bool cut = recipe.data.long_documents == LongDocuments::cut;
  bad_input(Code::data_too_few,
            "{} has {} sequences of at most model.seq_len = {} tokens, fewer than one step requires (train.batch {} x "
            "train.accumulate {}); lower train.batch{}, or use more text",
            "data.train", sequences, recipe.model.seq_len, train.batch, train.accumulate,
            cut ? ", set data.long = \"split\" so that long documents become several" : " or model.seq_len");
}

// A short text may end a run within its warm-up; the result looks like a failed training.
void tell_short_run(const Host& host, const std::string& of, const TrainingStage& stage) {
  const std::int64_t warmup = stage.recipe.train.warmup_steps;
  if (warmup == 0 || stage.steps > warmup) return;
  const std::int64_t epochs = (10 * warmup + stage.steps_per_epoch - 1) / stage.steps_per_epoch;
  host.log.info(
      "{}the run has {} steps and train.warmup_steps is {}, so the learning rate never reaches train.lr; read the text "
      "more often (train.epochs={}) or shorten the warm-up (train.warmup_steps={})",
      of, stage.steps, warmup, epochs, std::max<std::int64_t>(1, stage.steps / 10));
}

TrainingStage make_course(const Host& host, const Recipe& recipe, const std::string& title, const Corpora& corpora) {
  TrainingStage training_stage{title, recipe, corpora.tokenizer, corpora.train, corpora.valid, {}, {}, {}};
  training_stage.recipe.model.vocab = training_stage.tokenizer.vocab_size();
  training_stage.batches.seq_len = recipe.model.seq_len;
  training_stage.batches.count_pads = recipe.data.count_pads;
  training_stage.batches.pad_id = training_stage.tokenizer.pad_id();
  training_stage.batches.eos_id = training_stage.tokenizer.eos_id();
  training_stage.batches.long_documents = recipe.data.long_documents;
  training_stage.evaluation = evaluate_options(recipe, training_stage.tokenizer);
  const TrainConfig& train = recipe.train;
  training_stage.use.train = data_use(training_stage.train, recipe.model.seq_len, recipe.data.long_documents);
  training_stage.use.valid = data_use(training_stage.valid, recipe.model.seq_len, recipe.data.long_documents);
  const std::string of = title.empty() ? "" : title + ": ";
  host.log.info("{}training text: {}", of, describe(training_stage.use.train, recipe.model.seq_len));
  host.log.info("{}validation text: {}", of, describe(training_stage.use.valid, recipe.model.seq_len));
  const std::int64_t sequences = training_stage.use.train.sequences;
  check_enough_text(sequences, recipe);
  training_stage.steps_per_epoch = sequences / train.batch / train.accumulate;
  training_stage.spare = sequences / train.batch - training_stage.steps_per_epoch * train.accumulate;
  training_stage.steps = training_stage.steps_for(train);
  tell_short_run(host, of, training_stage);
  return training_stage;
}

// Adds the name of the stage to errors thrown by `work`.
template <typename Work>
void in_stage(const Recipe& recipe, std::size_t stage, const Work& work) {
  if (recipe.stages.empty()) return work();
  try {
    work();
  } catch (const Error& error) {
    const std::string name = fmt::format("stage {}", stage + 1);
    throw error.within(name, fmt::format("{} ({}): {}", name, stage_name(recipe, stage), error.what()));
  }
}

}  // namespace

std::int64_t TrainingStage::steps_for(const TrainConfig& train) const {
  const std::int64_t all = steps_per_epoch * train.epochs;
  return train.max_steps > 0 ? std::min(all, train.max_steps) : all;
}

RunData use_of_texts(const std::vector<TrainingStage>& training_stages) {
  if (training_stages.size() == 1 && training_stages[0].title.empty()) return training_stages[0].use;
  RunData all;
  const auto add = [](DataUse& sum, const DataUse& one) {
    sum.documents += one.documents;
    sum.tokens += one.tokens;
    sum.used += one.used;
    sum.sequences += one.sequences;
  };
  for (const TrainingStage& training_stage : training_stages) {
    add(all.train, training_stage.use.train);
    add(all.valid, training_stage.use.valid);
    all.stages.push_back(training_stage.use);
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
      if (forecast.text) check_enough_text(forecast.max_sequences, stages[i]);
    });
  }
}

std::vector<TrainingStage> prepare_stages(const Host& host, const Recipe& recipe, const std::string& tokenizer,
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
  std::vector<TrainingStage> training_stages;
  host.group.all_or_none([&] {
    if (!host.group.root()) {
      given = Tokenizer::from_json(vocabulary, "the tokenizer of rank 0");
      load();
    }
    for (std::size_t i = 0; i < stages.size(); ++i) {
      in_stage(recipe, i, [&] {
        training_stages.push_back(
            make_course(host, stages[i], recipe.stages.empty() ? "" : stage_name(recipe, i), corpora[i]));
      });
    }
  });
  return training_stages;
}

}  // namespace some
