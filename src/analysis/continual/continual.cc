#include "analysis/continual/continual.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/assignments.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/escape.h"
#include "train/remember.h"

namespace some {
namespace {

struct TextParts {
  std::string name;
  TokenStream learn, test;
};

TextParts parts_of_text(std::string name, const TokenStream& stream, const ContinualOptions& options) {
  const std::int64_t test = std::min(options.test_tokens, std::ssize(stream) / 5);
  const std::int64_t learn = std::min(options.tokens, std::ssize(stream) - test);
  if (test < 2 || learn < 2)
    bad_input(Code::data_nothing_to_predict,
              "{} has {} tokens, too few for learning and for the test; use a longer text", name, stream.size());
  return {std::move(name),
          {stream.begin(), stream.begin() + learn},
          {stream.begin() + learn, stream.begin() + learn + test}};
}

// The run's own text: what it was trained on, and its validation text.
TextParts own_text(OpenedRun& run, const ContinualOptions& options) {
  const auto load = [&](const std::string& source, std::int64_t most) {
    return stream_of(load_analysis_text(run, source, 0).data, most);
  };
  TextParts out{"own text", load(run.recipe.data.train, options.tokens), load("", options.test_tokens)};
  if (out.learn.size() < 2 || out.test.size() < 2)
    bad_input(Code::data_nothing_to_predict, "the texts of this run are too short for the test");
  return out;
}

std::vector<ContinualMethod> all_methods() {
  std::vector<ContinualMethod> out;
  for (int m = 0; m < continual_methods; ++m) out.push_back(static_cast<ContinualMethod>(m));
  return out;
}

void check(const ContinualOptions& options) {
  const auto require = [](bool right, const char* option, const auto& value, const char* wanted) {
    if (!right) bad_input(Code::option_invalid, "{} {}: must be {}", option, value, wanted);
  };
  if (options.texts.empty())
    bad_input(Code::argument_missing, "no text to learn; pass files, folders or builtin:DOMAIN");
  require(options.tokens >= 100, "--tokens", options.tokens, "at least 100");
  require(options.test_tokens >= 20, "--test-tokens", options.test_tokens, "at least 20");
  const ContinualSettings& settings = options.settings;
  require(settings.epochs >= 1 && settings.epochs <= 1000, "--epochs", settings.epochs, "from 1 to 1000");
  require(settings.batch >= 1 && settings.batch <= 4096, "--batch", settings.batch, "from 1 to 4096");
  require(settings.rate >= 0 && settings.rate < 1, "--rate", settings.rate, "from 0 (0.3 times that of the run) to 1");
  require(settings.lora_rate >= 0 && settings.lora_rate < 1, "--lora-rate", settings.lora_rate, "from 0 to 1");
  require(settings.dynamic_rate > 0 && settings.dynamic_rate < 1, "--dynamic-rate", settings.dynamic_rate,
          "above 0 and below 1");
  require(settings.ewc >= 0, "--ewc", settings.ewc, "at least 0");
  require(settings.rank >= 1 && settings.rank <= 4096, "--rank", settings.rank, "from 1 to 4096");
}

}  // namespace

ContinualMeasures measures_of(const std::vector<std::vector<double>>& losses) {
  ContinualMeasures out;
  const std::size_t last = losses.size() - 1;
  for (std::size_t j = 0; j <= last; ++j) {
    out.average += losses[last][j] / static_cast<double>(last + 1);
    if (j < last) {
      double lowest = losses[0][j];
      for (std::size_t i = 0; i < last; ++i) lowest = std::min(lowest, losses[i][j]);
      out.forgetting += (losses[last][j] - lowest) / static_cast<double>(last);
      out.backward += (losses[j][j] - losses[last][j]) / static_cast<double>(last);
    }
    if (j > 0) out.forward += (losses[0][j] - losses[j - 1][j]) / static_cast<double>(last);
  }
  return out;
}

ContinualReport measure_continual(OpenedRun& run, const ContinualOptions& options) {
  check(options);
  ContinualReport report;
  report.run = run.paths.folder;
  report.step = run.step;
  report.seed = run.recipe.seed;
  report.window = options.choices.window.value_or(default_window(run.recipe.model));
  ContinualSettings settings = options.settings;
  settings.seed = run.recipe.seed;
  if (settings.rate == 0) settings.rate = 0.3 * run.recipe.train.lr;
  report.epochs = settings.epochs;
  report.batch = settings.batch;
  report.rate = settings.rate;
  report.model_bytes =
      static_cast<double>(run.model->parameters().parameters()) * static_cast<double>(size_of(run.ctx->master));
  MemoryOverrides choices = options.choices;
  choices.contexts = choices.contexts.value_or(ContextSettings{}.longest);
  choices.documents = document_end(run).has_value();
  settings.memory = apply_memory_overrides(default_memory_settings(run), choices, document_end(run));
  check_settings(settings.memory, "--");
  std::vector<TextParts> texts{own_text(run, options)};
  for (const std::string& text : options.texts) {
    const TokenData data = load_tokens(*run.ctx, text, run.recipe.data, run.tokenizer, 0, run.paths.read_only_cache());
    texts.push_back(parts_of_text(escaped(text), stream_of(data, options.tokens + options.test_tokens), options));
  }
  const std::vector<ContinualMethod> methods = options.methods.empty() ? all_methods() : options.methods;
  const int orders = options.both_orders && texts.size() > 2 ? 2 : 1;
  const auto total = static_cast<std::int64_t>(methods.size()) * orders;
  for (int o = 0; o < orders && !report.stopped; ++o) {
    if (o == 1) std::reverse(texts.begin() + 1, texts.end());
    ContinualOrder order;
    for (const TextParts& text : texts) {
      order.texts.push_back(text.name);
      order.tokens.push_back(std::ssize(text.learn));
      order.test_tokens.push_back(std::ssize(text.test));
    }
    for (const ContinualMethod method : methods) {
      if ((report.stopped = options.stop && options.stop())) break;
      if (options.progress)
        options.progress(name_of(method), o * std::ssize(methods) + std::ssize(order.results), total);
      ContinualResult result;
      result.method = method;
      const auto learner = make_learner(run, method, settings, report.window);
      const auto test = [&] {
        const auto begin = std::chrono::steady_clock::now();
        std::vector<double>& row = result.losses.emplace_back();
        for (const TextParts& text : texts) row.push_back(learner->loss(text.test));
        result.test_seconds += seconds_since(begin) / static_cast<double>(texts.size());
      };
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto begin = std::chrono::steady_clock::now();
        if (i == 0)
          learner->begin(texts[i].learn);
        else
          learner->learn(texts[i].name, texts[i].learn);
        result.seconds += seconds_since(begin);
        test();
      }
      result.measures = measures_of(result.losses);
      result.kept_bytes = learner->kept_bytes();
      order.results.push_back(std::move(result));
    }
    if (!order.results.empty()) report.orders.push_back(std::move(order));
  }
  return report;
}

std::vector<std::vector<ContinualSummary>> summarize(const std::vector<ContinualReport>& reports) {
  std::vector<std::vector<ContinualSummary>> out;
  const auto count = static_cast<double>(reports.size());
  const auto differ = [&](const ContinualReport& one) {
    bad_input(Code::option_conflict, "{} and {} were not measured on the same texts with the same methods",
              reports[0].run, one.run);
  };
  for (std::size_t o = 0; !reports.empty() && o < reports[0].orders.size(); ++o) {
    std::vector<ContinualSummary>& order = out.emplace_back();
    for (std::size_t m = 0; m < reports[0].orders[o].results.size(); ++m) {
      const ContinualResult& first = reports[0].orders[o].results[m];
      ContinualSummary sum;
      sum.method = first.method;
      sum.losses.assign(first.losses.size(), std::vector<double>(first.losses.size(), 0.0));
      for (const ContinualReport& report : reports) {
        if (report.orders.size() <= o || report.orders[o].results.size() <= m ||
            report.orders[o].results[m].method != sum.method || report.orders[o].texts != reports[0].orders[o].texts)
          differ(report);
        const ContinualResult& one = report.orders[o].results[m];
        for (std::size_t i = 0; i < sum.losses.size(); ++i)
          for (std::size_t j = 0; j < sum.losses.size(); ++j) sum.losses[i][j] += one.losses[i][j] / count;
        sum.seconds += one.seconds / count;
        sum.test_seconds += one.test_seconds / count;
        sum.kept_bytes += one.kept_bytes / count;
      }
      for (double ContinualMeasures::*measure : {&ContinualMeasures::average, &ContinualMeasures::forgetting,
                                                 &ContinualMeasures::backward, &ContinualMeasures::forward}) {
        double mean = 0, squares = 0;
        for (const ContinualReport& report : reports) mean += report.orders[o].results[m].measures.*measure / count;
        for (const ContinualReport& report : reports)
          squares += std::pow(report.orders[o].results[m].measures.*measure - mean, 2);
        sum.mean.*measure = mean;
        sum.deviation.*measure = reports.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
      }
      order.push_back(std::move(sum));
    }
  }
  return out;
}

nlohmann::json to_json(const ContinualReport& report) {
  nlohmann::json orders = nlohmann::json::array();
  for (const ContinualOrder& order : report.orders) {
    nlohmann::json methods = nlohmann::json::array();
    for (const ContinualResult& one : order.results)
      methods.push_back({{"method", name_of(one.method)},
                         {"keeps", what_is_kept(one.method)},
                         {"losses", one.losses},
                         {"average", one.measures.average},
                         {"forgetting", one.measures.forgetting},
                         {"backward_transfer", one.measures.backward},
                         {"forward_transfer", one.measures.forward},
                         {"seconds", one.seconds},
                         {"test_seconds", one.test_seconds},
                         {"kept_bytes", one.kept_bytes}});
    orders.push_back(
        {{"texts", order.texts}, {"tokens", order.tokens}, {"test_tokens", order.test_tokens}, {"methods", methods}});
  }
  return {
      {"run", report.run},       {"step", report.step},      {"seed", report.seed}, {"window", report.window},
      {"epochs", report.epochs}, {"batch", report.batch},    {"rate", report.rate}, {"model_bytes", report.model_bytes},
      {"orders", orders},        {"stopped", report.stopped}};
}

}  // namespace some
