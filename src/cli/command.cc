#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "cli/places.h"
#include "core/escape.h"

namespace some {

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::range(std::int64_t least, std::int64_t most) {
  option_->check(CLI::Range(least, most));
  return this;
}

Option* Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return this;
}

Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}

Option* Option::allow_extra_args(bool several) {
  option_->allow_extra_args(several);
  return this;
}

Option* Option::delimiter(char between) {
  option_->delimiter(between);
  return this;
}

Option* Option::run_folder() {
  option_->transform([](const std::string& name) { return find_run_folder(name); });
  return this;
}

Option* Option::memory_file() {
  option_->transform([](const std::string& name) { return find_memory_file(name); });
  return this;
}

Option* Option::excludes(const Option* other) {
  option_->excludes(other->option_);
  return this;
}

std::string Option::name() const {
  return option_->get_lnames().empty() ? option_->get_name(true) : option_->get_lnames().front();
}
std::vector<std::string> Option::long_names() const { return option_->get_lnames(); }
std::string Option::all_names() const {
  return is_positional() ? option_->get_name(true) : option_->get_name(false, true);
}
std::string Option::description() const { return option_->get_description(); }
std::string Option::default_text() const { return option_->get_default_str(); }
bool Option::is_positional() const { return option_->get_positional(); }
bool Option::is_required() const { return option_->get_required(); }
bool Option::is_hidden() const { return option_->get_group().empty(); }
bool Option::takes_value() const { return option_->get_items_expected_max() > 0; }
bool Option::takes_several() const { return option_->get_items_expected_max() > 1; }

namespace {

const char* title_of(CommandGroup group) {
  switch (group) {
    case CommandGroup::train_and_use: return "Train and use";
    case CommandGroup::other_programs: return "Exchange";
    case CommandGroup::look_inside: return "Analyze";
    case CommandGroup::find_things: return "Runs and settings";
    case CommandGroup::experiments: return "Experiments";
    case CommandGroup::text: return "Text";
    case CommandGroup::shells: return "Shell";
    case CommandGroup::hidden: return "";
  }
  return "";
}

// Formats the examples for help; comments are aligned in one column unless a line would become too long.
std::string footer_of(const std::vector<Example>& examples) {
  std::size_t width = 0;
  for (const Example& one : examples) width = std::max(width, one.line.size());
  std::string text = examples.size() > 1 ? "Examples:" : "Example:";
  for (const Example& one : examples) {
    const bool short_enough = width + one.comment.size() + 11 <= 100;
    text += "\n  some " + one.line;
    if (!one.comment.empty())
      text += std::string(short_enough ? width - one.line.size() + 2 : 2, ' ') + "# " + one.comment;
  }
  return text;
}

}  // namespace

Command::Command(CLI::App* app, Command* parent, CommandSpec spec)
    : app_(app), parent_(parent), spec_(std::move(spec)) {}
Command::~Command() = default;

void Command::add(const CommandSpec& spec) {
  CLI::App* app = app_->add_subcommand(spec.name, spec.summary);
  Command& added = *subcommands_.emplace_back(std::make_unique<Command>(app, this, spec));
  if (spec.set_up != nullptr) spec.set_up(added);
  if (spec.json.empty() != !added.find_option("--json"))
    throw std::logic_error(fmt::format("'{}': its spec and its options differ about --json", added.path()));
  for (const CommandSpec& one : spec.subcommands) added.add(one);
  if (!spec.subcommands.empty()) app->require_subcommand(1);
  if (!spec.examples.empty()) app->footer(footer_of(spec.examples));
  // last, because subcommands would inherit the group set at that time
  if (parent_ == nullptr) app->group(title_of(spec.group));
}

Option* Command::keep(CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

template <typename T>
Option* Command::add_option(const std::string& names, T& value, const std::string& description) {
  return keep(app_->add_option(names, value, description));
}

Option* Command::add_flag(const std::string& names, bool& value, const std::string& description) {
  return keep(app_->add_flag(names, value, description));
}

Option* Command::add_flag_callback(const std::string& names, std::function<void()> action,
                                   const std::string& description) {
  return keep(app_->add_flag_callback(names, std::move(action), description));
}

void Command::add_json(bool& value) {
  add_flag("--json", value, fmt::format("print {} as one JSON object", spec_.json));
}

void Command::callback(std::function<void()> action) { app_->callback(std::move(action)); }

std::string Command::path() const {
  if (parent_ == nullptr) return "";
  const std::string above = parent_->path();
  return above.empty() ? name() : above + " " + name();
}

bool Command::works_on_ranks() const {
  return spec_.works_on_ranks || (parent_ != nullptr && parent_->works_on_ranks());
}

std::vector<Command*> Command::subcommands() const {
  std::vector<Command*> out;
  for (const auto& one : subcommands_) out.push_back(one.get());
  return out;
}

Command* Command::chosen() const {
  const auto found = app_->get_subcommands();  // the subcommands named on the command line
  for (const auto& one : subcommands_) {
    if (!found.empty() && one->app_ == found.front()) return one.get();
  }
  return nullptr;
}

std::vector<Option> Command::options() const {
  std::vector<Option> out;
  for (CLI::Option* one : app_->get_options()) out.emplace_back(one);
  return out;
}

std::optional<Option> Command::find_option(const std::string& name) const {
  CLI::Option* found = app_->get_option_no_throw(name);
  return found == nullptr ? std::nullopt : std::optional(Option(found));
}

// Does not use App::help: it shows the running command when the program's help is requested, and omits the program's
// name from a command's help.
std::string Command::help() const {
  std::string words = name();
  for (const Command* above = parent_; above != nullptr; above = above->parent_) words = above->name() + " " + words;
  return app_->get_formatter()->make_help(app_, words, CLI::AppFormatMode::Normal);
}

namespace {

// Returns an empty string if `text` is an integer that fits 64 bits, and strips its leading zeros; otherwise the fault.
std::string integer_fault(std::string& text, bool negative_too) {
  const bool negative = text.starts_with('-');
  const std::string digits = text.substr(negative ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
    return fmt::format("must be an integer, not '{}'", text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (error != std::errc() || end != digits.data() + digits.size() || (negative && value > 0 && !negative_too) ||
      (negative_too && value > largest))
    return fmt::format("{} is out of range; must be an integer {} {}", shortened(text, 40),
                       negative && !negative_too ? ">=" : "<=",
                       negative && !negative_too ? 0
                       : negative_too            ? largest
                                                 : ~std::uint64_t{0});
  text = fmt::format("{}{}", negative && value > 0 ? "-" : "", value);
  return "";
}

std::string number_fault(std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' || !std::isfinite(value) ? fmt::format("must be a number, not '{}'", text) : "";
}

void check_numbers_of(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    std::string type = option->get_type_name();
    type.resize(std::min(type.find(':'), type.size()));  // drops the existing checks, which follow the colon
    if (type != "INT" && type != "UINT" && type != "FLOAT") continue;
    option->transform([type](std::string text) -> std::string {
      const std::string fault = type == "FLOAT" ? number_fault(text) : integer_fault(text, type == "INT");
      if (!fault.empty()) throw CLI::ValidationError(fault);
      return text;
    });
  }
  for (CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) check_numbers_of(*command);
}

}  // namespace

Program::Program(const std::string& name, const std::string& description, const std::string& version)
    : Command(nullptr, nullptr, {.name = name, .summary = description}),
      owned_(std::make_unique<CLI::App>(description)) {
  app_ = owned_.get();
  app_->name(name);
  app_->require_subcommand(1);
  app_->set_version_flag("--version", version);
  app_->failure_message(CLI::FailureMessage::simple);
}

Program::~Program() = default;

// Maps CLI11's error names to codes.
static Code code_of(const CLI::ParseError& error) {
  const std::string name = error.get_name();
  if (name == "RequiredError") return Code::argument_missing;
  if (name == "ExcludesError") return Code::option_conflict;
  if (name == "RequiresError") return Code::option_needs_another;
  if (name == "OptionNotFound" || name == "ExtrasError") return Code::argument_unexpected;
  return Code::option_invalid;
}

void Program::check_numbers() { check_numbers_of(*app_); }

std::vector<std::string> Program::unexpected_words() const { return app_->remaining(true); }

void Program::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ExtrasError& error) {
    throw UsageError{error.what(), Code::argument_unexpected};
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help and version are not errors
      app_->exit(error);
      return;
    }
    // An unknown option is the more helpful reason if something else is missing as well.
    const std::vector<std::string> rest = app_->remaining(true);
    const bool unknown =
        std::any_of(rest.begin(), rest.end(), [](const std::string& word) { return word.starts_with("-"); });
    if (error.get_name() == "RequiredError" && unknown) throw UsageError{error.what(), Code::argument_unexpected};
    std::string what = error.what();
    while (!what.empty() && (what.back() == '\n' || what.back() == '.')) what.pop_back();
    if (error.get_name() == "ConversionError") what += ", which is out of range or not of that kind";
    throw UsageError{what, code_of(error)};
  }
}

template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, int&, const std::string&);
template Option* Command::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option* Command::add_option(const std::string&, double&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<int>&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<double>&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::int32_t>&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<double>&, const std::string&);

}  // namespace some
