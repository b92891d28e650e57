// usage: fuzz_readers [--target NAME] [--seconds S] [--count N] [--seed K] [--from N] [--list] [--input FILE]
//   Every target gets an equal part of the seconds, or N inputs; a fault ends the program and prints how to reproduce
//   it.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/escape.h"
#include "fuzz/fuzz.h"
#include "temporary_folder.h"

extern "C" {
void __sanitizer_set_death_callback(void (*callback)());
// An input of a few kilobytes must not cause an allocation of a gigabyte. Stacks of allocations and a large quarantine
// would take half of the time; a fault is repeated with them (see below).
const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:hard_rss_limit_mb=4096:allocator_may_return_null=0:malloc_context_size=1:"
         "quarantine_size_mb=8";
}
const char* __ubsan_default_options() { return "print_stacktrace=1"; }
}

namespace some::fuzz {
namespace {

// Seconds of CPU time, which do not depend on the machine's load, and of waiting, for a reader that does not compute.
constexpr unsigned longest_answer = 10, longest_wait = 120;

struct Now {
  const Target* target = nullptr;
  std::uint64_t seed = 0, number = 0;
  std::string input;
} now;

void tell_where() {
  if (now.target == nullptr) return;
  const std::string name = "fuzz-" + now.target->name() + "-" + std::to_string(now.number) + ".input";
  std::ofstream(name, std::ios::binary) << now.input;
  std::fprintf(stderr,
               "\nfault: input %llu of %s, kept in %s; again with: ASAN_OPTIONS=malloc_context_size=30 --target %s "
               "--seed %llu --from %llu --count 1\n",
               static_cast<unsigned long long>(now.number), now.target->name().c_str(), name.c_str(),
               now.target->name().c_str(), static_cast<unsigned long long>(now.seed),
               static_cast<unsigned long long>(now.number));
}

void on_alarm(int) {
  std::fprintf(stderr, "\nno answer within %u seconds of CPU time or %u of waiting", longest_answer, longest_wait);
  tell_where();
  std::_Exit(3);
}

[[noreturn]] void fault(const std::string& what) {
  std::fprintf(stderr, "\n%s", what.c_str());
  tell_where();
  std::_Exit(1);
}

// Checks that a message names the file and does not repeat words of a library.
void judge(const Error& error, const std::string& origin) {
  const std::string message = error.what();
  if (error.fault() != Fault::input) fault("put down to the program, not to the input: " + message);
  if (message.find(origin) == std::string::npos) fault("does not name the file: " + message);
  if (message.size() > 2000) fault("is very long: " + message.substr(0, 2000));
  for (const char* word : {"exception", "std::", "stod", "stoi", "stoll", "map::at", "vector::", "basic_string", "_M_",
                           "bad_", "nlohmann", "toml::", "last read"}) {
    // A message may quote the input, which may contain such a word by chance.
    if (message.find(word) != std::string::npos && now.input.find(word) == std::string::npos)
      fault("speaks a library's words: " + message);
  }
}

struct Counts {
  std::uint64_t taken = 0, refused = 0;
};

void limit_time(unsigned cpu_seconds, unsigned seconds) {
  const itimerval timer{{0, 0}, {static_cast<time_t>(cpu_seconds), 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
  alarm(seconds);
}

void one(Target& target, const std::string& input, Counts& counts) {
  now.target = &target;
  now.input = input;
  limit_time(longest_answer, longest_wait);
  try {
    target.read(input);
    ++counts.taken;
  } catch (const Error& error) {
    judge(error, target.origin());
    if (std::getenv("SOME_FUZZ_SHOW") != nullptr) std::printf("refused: %s\n", error.what());
    ++counts.refused;
  } catch (const std::exception& error) {
    fault(std::string("another exception: ") + error.what());
  }
  limit_time(0, 0);
}

int run(int argc, char** argv) {
  std::string only, file;
  double seconds = 0;
  std::uint64_t count = 0, seed = 1, from = 0;
  bool list = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--list") {
      list = true;
      continue;
    }
    ++i;
    if (word == "--target")
      only = value;
    else if (word == "--seconds")
      seconds = std::strtod(value.c_str(), nullptr);
    else if (word == "--count")
      count = std::strtoull(value.c_str(), nullptr, 10);
    else if (word == "--seed")
      seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (word == "--from")
      from = std::strtoull(value.c_str(), nullptr, 10);
    else if (word == "--input")
      file = value;
    else {
      std::fprintf(stderr, "unknown word %s\n", word.c_str());
      return 2;
    }
  }
  if (count == 0 && seconds == 0) seconds = 30;
  const TemporaryFolder scratch;
  auto targets = all_targets(scratch.path());
  std::erase_if(targets, [&](const auto& target) { return !only.empty() && target->name() != only; });
  if (targets.empty()) {
    std::fprintf(stderr, "there is no target %s\n", only.c_str());
    return 2;
  }
  __sanitizer_set_death_callback(tell_where);
  std::signal(SIGALRM, on_alarm);
  std::signal(SIGPROF, on_alarm);
  now.seed = seed;
  for (auto& target : targets) {
    if (list) {
      std::printf("%s\n", target->name().c_str());
      continue;
    }
    Counts counts;
    if (!file.empty()) {
      one(*target, read_whole(file), counts);
      std::printf("%s: %s\n", target->name().c_str(), counts.taken > 0 ? "taken" : "refused");
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    std::uint64_t number = from;
    for (; (count == 0 || number < from + count) &&
           (seconds == 0 || passed() < seconds / static_cast<double>(targets.size()));
         ++number) {
      now.number = number;
      Dice dice(seed, target->name(), number);
      one(*target, target->make(dice), counts);
    }
    std::printf("%-12s %9llu inputs (%llu taken, %llu refused), %.0f a second\n", target->name().c_str(),
                static_cast<unsigned long long>(number - from), static_cast<unsigned long long>(counts.taken),
                static_cast<unsigned long long>(counts.refused), static_cast<double>(number - from) / passed());
    std::fflush(stdout);
    // A target with a single outcome tests little.
    if (number - from >= 2000 && (counts.taken == 0 || counts.refused == 0)) {
      std::fprintf(stderr, "%s only ever gave one answer\n", target->name().c_str());
      return 1;
    }
  }
  now.target = nullptr;
  return 0;
}

}  // namespace

MemoryFile::MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
  if (descriptor_ < 0) std::abort();
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

void MemoryFile::set(std::string_view bytes) {
  if (ftruncate(descriptor_, 0) != 0) std::abort();
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t written = pwrite(descriptor_, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (written <= 0) std::abort();
    at += static_cast<std::size_t>(written);
  }
}

std::vector<std::unique_ptr<Target>> all_targets(const std::string& scratch_folder) {
  std::vector<std::unique_ptr<Target>> targets;
  add_text_targets(targets, scratch_folder);
  add_file_targets(targets, scratch_folder);
  add_run_targets(targets, scratch_folder);
  add_memory_targets(targets, scratch_folder);
  add_compress_targets(targets, scratch_folder);
  add_exchange_targets(targets, scratch_folder);
  add_board_targets(targets, scratch_folder);
  add_serve_targets(targets, scratch_folder);
  return targets;
}

}  // namespace some::fuzz

int main(int argc, char** argv) { return some::fuzz::run(argc, argv); }
