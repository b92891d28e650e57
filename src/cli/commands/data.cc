#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "cli/command.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "text/stories.h"

namespace some {
namespace {

struct DataFlags {
  StoryOptions story;
  std::int64_t count = 10, first = 0;
  std::string out;
  bool json = false;
};

void stories(const DataFlags& options) {
  if (options.count < 1) bad_input(Code::option_invalid, "{} {}: must be >= 1", "--count", options.count);
  if (options.first < 0)
    bad_input(Code::option_invalid, "{} {}: documents are counted from 0", "--first", options.first);
  if (options.count > max_stories || options.first > max_stories - options.count)
    bad_input(Code::option_invalid, "{} {} from --first {}: there are only {} documents", "--count", options.count,
              options.first, max_stories);
  constexpr std::int64_t max_in_one_object = 1'000'000;
  if (options.json && options.out.empty() && options.count > max_in_one_object)
    bad_input(Code::option_invalid, "{} {}: one JSON object holds at most {} documents; use -o FILE", "--count",
              options.count, max_in_one_object);
  if (options.json && options.out.empty()) {
    nlohmann::json list = nlohmann::json::array();
    for (std::int64_t i = 0; i < options.count; ++i)
      list.push_back(make_story(options.story, static_cast<std::uint64_t>(options.first + i)));
    print_json({{"domain", options.story.domain}, {"seed", options.story.seed}, {"stories", list}});
    return;
  }
  const auto write = [&](const std::function<void(std::string_view)>& sink) {
    write_stories(options.story, static_cast<std::uint64_t>(options.count), sink,
                  static_cast<std::uint64_t>(options.first));
  };
  if (options.out.empty()) {
    write([](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); });
    return;
  }
  write_output_file(options.out, [&](const ByteSink& sink) {
    write([&](std::string_view text) { sink(text.data(), text.size()); });
  });
  if (options.json)
    print_json({{"domain", options.story.domain},
                {"seed", options.story.seed},
                {"file", options.out},
                {"count", options.count}});
  else
    fmt::print("{}: {} documents of the domain {}\n", options.out, options.count, options.story.domain);
}

void set_up_data_stories(Command& command) {
  auto options = std::make_shared<DataFlags>();
  command.add_option("--count", options->count, "how many")->capture_default_str();
  command.add_option("--first", options->first, "number of the first document, from 0")->capture_default_str();
  command.add_option("--seed", options->story.seed, "seed of the documents")->capture_default_str();
  command.add_option("--domain", options->story.domain, fmt::format("one of: {}", fmt::join(story_domains(), ", ")))
      ->capture_default_str();
  command.add_option("-o,--out", options->out, "output file (default: standard output)");
  command.add_json(options->json);
  command.callback([options] { stories(*options); });
}

}  // namespace

CommandSpec data_command() {
  return {
      .name = "data",
      .group = CommandGroup::text,
      .summary = "generate built-in text",
      .subcommands = {{
          .name = "stories",
          .summary = "generate documents of a built-in domain",
          .examples = {{"data stories --count 100 --domain nature -o nature.txt", ""}},
          .json = "the result",
          .set_up = set_up_data_stories,
      }},
  };
}

}  // namespace some
