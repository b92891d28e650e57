// Runs every command line shown in the documents and in the help: README.md, the guides in docs/ listed below and the
// pages of docs/json from top to bottom, each document in a fresh folder, and the examples of every command's help.
//
// A command line is an indented line, or a line in a fenced block, that begins with a program's name. Commands that a
// document needs but does not show are in comments that readers do not see:
//   <!-- setup: COMMAND -->   run before the lines that follow
// `some` is a small script in these tests. It adds settings to commands that would take long, so that a line runs
// exactly as written, on a small model and little text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "cli/run_command.h"
#include "core/files/files.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string source = SOME_SOURCE_DIR, program = std::string(SOME_BINARY_DIR) + "/some";

const char* const small_some = R"(#!/bin/bash
# Runs the program with settings that make a long command short. What the line says itself wins.
model="model.d_model=32 model.layers=2 model.heads=2 model.seq_len=64 some.experts=8 some.d_ffn=48 some.top_k=2"
text="data.vocab=400 data.train_documents=60 data.valid_documents=8"
steps="train.max_steps=4 train.eval_every=0 train.warmup_steps=1 train.save_keys_every=2 train.batch=4"
program=PROGRAM
words=("$@")
flag() { [[ " ${words[*]} " == *" $1 "* ]] || words+=("$@"); }  # unless the line has it
settings() { words=("${words[@]:0:$1}" "${@:2}" "${words[@]:$1}"); }  # before the line's own
case $1 in
  train) case $2 in
      --resume) [[ " $* " != *" train.epochs="* ]] || words+=(train.max_steps=6) ;;
      --from) settings 3 $steps ;;
      *) settings 2 $model $text $steps ;;
    esac ;;
  lr) settings 2 $model $text train.batch=4; flag --steps 20 ;;
  sweep) settings 2 $model $text $steps ;;
  compress | decompress) flag --force ;;
  adapt) if [[ " $* " == *" --compare "* ]]; then flag --tokens 300; else flag --max-documents 10; flag --max-eval-documents 4; fi ;;
  read) flag --tokens 600; flag --original 300 ;;
  needle) flag --data builtin:stories ;;
  guilds) flag --shuffles 5; flag --max-documents 6 ;;
  ablate) [[ " $* " == *" --unit rule "* ]] || flag --layer 0; flag --shuffles 5 ;;
  inspect) flag --max-documents 6 ;;
  generate | chat) [[ " $* " == *" -n "* ]] || flag --max-tokens 12 ;;
  bench)
    settings 3 $model train.batch=2
    if [[ $2 == generate ]]; then flag --tokens 8; flag --repeats 1; else flag --warmup 1; flag --steps 2; fi ;;
  board | serve)  # until it is open, however busy the machine is; what another one said does not count
    rm -f board.said
    "$program" "${words[@]}" --port 0 2>board.said &
    until grep -qs "the board is open\|base URL for clients" board.said || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
    kill $!
    wait $!
    code=$?
    cat board.said >&2
    exit $code ;;
  lab) [[ $2 != run ]] || { settings 3 train.batch=2 data.vocab=400; flag --scale 0.01; flag --max-steps 1; } ;;
esac
exec "$program" "${words[@]}"
)";

struct Line {
  int number = 0;
  bool setup = false;
  std::string text;
};

// Returns the command in a line of a document; empty if the line is not a command.
std::string command_in(std::string line) {
  if (line.starts_with("$ ")) line.erase(0, 2);
  static const std::set<std::string> programs = {"some",  "./quickstart", "./check", "export", "cmake",
                                                 "cpack", "sudo",         "head",    "tail",   "cat",
                                                 "mkdir", "iconv",        "printf",  "echo",   "build/some"};
  return programs.contains(line.substr(0, line.find(' '))) ? line : "";
}

std::vector<Line> lines_of(const std::string& path) {
  std::vector<Line> out;
  std::istringstream text(read_file(path));
  bool fenced = false, shell = false;
  int number = 0;
  static const std::regex setup("<!-- setup: (.*) -->");
  for (std::string line; std::getline(text, line);) {
    ++number;
    std::smatch found;
    if (std::regex_match(line, found, setup)) {
      out.push_back({number, true, found[1]});
    } else if (line.starts_with("```")) {
      fenced = !fenced;
      shell = fenced && (line == "```console" || line == "```sh" || line == "```bash");
    } else if (shell || (!fenced && line.starts_with("    "))) {
      const std::string command = command_in(shell ? line : line.substr(4));
      if (!command.empty()) out.push_back({number, false, command});
    }
  }
  return out;
}

// The environment that the documents assume: the checkout's recipes, and a fast `some` on the path.
class Desk {
 public:
  Desk() {
    std::string script = small_some;
    script.replace(script.find("PROGRAM"), 7, program);
    write_program("bin/some", script);
    for (const char* part : {"recipes", "tests"})
      fs::create_directory_symlink(source + "/" + std::string(part), folder_ / part);
    fs::create_directories(folder_ / "home");
  }

  CommandResult run(const std::string& line) const {
    const std::string script = folder_.write("line.sh", line + "\n");
    const std::string whole = "cd '" + folder_.path() +
                              "' && PATH=\"$PWD/bin:$PATH\" HOME=\"$PWD/home\" XDG_STATE_HOME= " +
                              "OMP_WAIT_POLICY=passive bash -eo pipefail line.sh </dev/null >out 2>err";
    const int status = std::system(whole.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(folder_ / "out"),
            read_file(folder_ / "err")};
  }

  void write_program(const std::string& name, const std::string& text) const {
    const std::string path = folder_.write(name, text);
    fs::permissions(path, fs::perms::owner_all);
  }

  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

void run_document(const Desk& desk, const std::string& name) {
  const std::vector<Line> lines = lines_of(source + "/" + name);
  int shown = 0;
  for (const Line& line : lines) {
    shown += !line.setup;
    const CommandResult result = desk.run(line.text);
    ASSERT_EQ(result.code, 0) << name << ":" << line.number << ": " << line.text << "\n" << result.out << result.err;
  }
  EXPECT_GT(shown, 0) << name << " shows no command";
}

// Puts the two scripts of the checkout into the folder. They really run, except for the parts that take minutes:
// packages, compiling and the tests themselves.
void add_scripts(const Desk& desk) {
  for (const char* script : {"quickstart", "check"})
    desk.write_program(script, read_file(source + "/" + std::string(script)));
  desk.write_program("scripts/install-packages", "#!/bin/sh\nexit 0\n");
  desk.write_program("scripts/count-tests", "#!/bin/sh\nexit 0\n");
  desk.write_program("bin/cmake", "#!/bin/sh\nmkdir -p build build-check && cp bin/some build/some\n");
  desk.write_program("bin/ctest", "#!/bin/sh\ntouch build-check/tests.xml\n");
}

TEST(Documents, ReadmeRuns) {
  Desk desk;
  add_scripts(desk);
  run_document(desk, "README.md");
}

TEST(Documents, EverydayCommandsRun) {
  Desk desk;
  add_scripts(desk);
  run_document(desk, "docs/everyday.md");
}

TEST(Documents, TutorialRuns) {
  if (!fs::exists(source + "/docs/tutorial.md")) GTEST_SKIP() << "not written yet";
  run_document(Desk(), "docs/tutorial.md");
}

TEST(Documents, ContinueGuideRuns) { run_document(Desk(), "docs/continue.md"); }

TEST(Documents, ConceptsRun) {
  for (const char* page : {"routing", "key-updates", "modulation", "memory"})
    run_document(Desk(), fmt::format("docs/concepts/{}.md", page));
}

TEST(Documents, DataGuideRuns) { run_document(Desk(), "docs/data.md"); }

TEST(Documents, GenerationGuideRuns) { run_document(Desk(), "docs/generation.md"); }

TEST(Documents, CompressGuideRuns) { run_document(Desk(), "docs/compress.md"); }

TEST(Documents, ExchangeGuideRuns) { run_document(Desk(), "docs/exchange.md"); }

// The pages of docs/json have, for each command, a line that runs it with --json and a table of keys. The table and the
// object have the same keys, except for keys described with "only if", which are present only in that case.
void check_json_page(const std::string& page, int& objects) {
  const Desk desk;
  std::istringstream text(read_file(source + page));
  std::map<int, std::string> lines;
  for (const Line& line : lines_of(source + page)) lines[line.number] = line.text;
  static const std::regex row(R"(\| `([^`]+)` \| (.*) \|)");
  int number = 0;
  std::set<std::string> always, sometimes, seen;
  std::string command;
  const auto compare = [&] {
    if (command.empty()) return;
    ++objects;
    for (const std::string& key : always) EXPECT_TRUE(seen.contains(key)) << command << " does not print " << key;
    for (const std::string& key : seen)
      EXPECT_TRUE(always.contains(key) || sometimes.contains(key))
          << command << " prints " << key << ", not documented";
    command.clear();
    always.clear();
    sometimes.clear();
    seen.clear();
  };
  for (std::string line; std::getline(text, line);) {
    ++number;
    std::smatch found;
    if (line.starts_with("## ")) compare();
    if (const auto at = lines.find(number); at != lines.end()) {
      const CommandResult result = desk.run(at->second);
      ASSERT_EQ(result.code, 0) << page << ":" << number << ": " << at->second << "\n" << result.err;
      if (at->second.find("--json") == std::string::npos) continue;
      compare();
      command = at->second;
      const Json object = Json::parse(result.out);
      for (const auto& [key, value] : object.items()) seen.insert(key);
    } else if (std::regex_match(line, found, row)) {
      const std::string key = found[1];
      if (key.find('.') != std::string::npos) continue;  // nested inside another
      (found[2].str().find("only if") != std::string::npos ? sometimes : always).insert(key);
    }
  }
  compare();
}

TEST(Documents, JsonIsAsDocumented) {
  int objects = 0;
  for (const char* page :
       {"/docs/json/training.md", "/docs/json/use.md", "/docs/json/analysis.md", "/docs/json/files.md"})
    check_json_page(page, objects);
  EXPECT_GE(objects, 35);
}

// The manual page contains the examples of every command.
TEST(Documents, ExamplesOfTheHelpRun) {
  const Desk desk;
  for (const char* line :
       {"some data stories --count 60 -o mine.txt", "printf 'Once upon a time\\nThe fox\\n' >prompts.txt",
        "cp mine.txt train.txt", "umask 077; echo 0123456789abcdef >keys.txt", "some lab run tiny --builtin",
        "some data stories --count 10 --first 500 -o valid.txt",
        "mkdir -p ~/.local/share/bash-completion/completions ~/.config/fish/completions"}) {
    const CommandResult result = desk.run(line);
    ASSERT_EQ(result.code, 0) << line << "\n" << result.err;
  }
  std::istringstream manual(run_command(SOME_BINARY_DIR, {"manual"}).out);
  int run = 0;
  bool listing = false;
  for (std::string line; std::getline(manual, line);) {
    if (line == ".nf" || line == ".fi") listing = line == ".nf";
    if (!listing || !line.starts_with("some ")) continue;
    line = std::regex_replace(line, std::regex(R"(\\-)"), "-");
    line = std::regex_replace(line, std::regex(R"(\\e)"), "\\");
    const CommandResult result = desk.run(line);
    EXPECT_EQ(result.code, 0) << line << "\n" << result.out << result.err;
    ++run;
  }
  EXPECT_GT(run, 30);
}

}  // namespace
}  // namespace some
