// Compares the board's line reader (board/json_walk.h, core/files/json_lines.h, board/run_log.h) with the JSON library:
// it must skip the same damaged lines and read the same numbers.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "board/json_walk.h"
#include "board/run_log.h"
#include "core/error.h"
#include "fuzz/fuzz.h"

namespace some::fuzz {
namespace {

namespace fs = std::filesystem;

// Below this, the two round to zero differently.
constexpr double smallest = 1e-300;

struct Walked : JsonVisitor {
  void number(const JsonPath&, double value) override {
    if (std::abs(value) >= smallest) numbers.push_back(value);
  }
  void text(const JsonPath&, std::string_view) override {}
  std::vector<double> numbers;
};

// Returns the numbers of a line in order, as read by the library; none for a rejected line.
struct Parsed : nlohmann::json_sax<nlohmann::json> {
  bool add(double value) {
    if (std::abs(value) >= smallest) numbers.push_back(value);
    return true;
  }
  bool deeper(bool object) {
    is_object = is_object || (depth == 0 && object);
    deepest = std::max(deepest, ++depth);
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return add(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return deeper(true); }
  bool start_array(std::size_t) override { return deeper(false); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return --depth, true; }
  bool end_array() override { return --depth, true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

  std::vector<double> numbers;
  int depth = 0, deepest = 0;
  bool is_object = false;
};

class BoardTarget : public Target {
 public:
  explicit BoardTarget(const std::string& scratch) : folder_(scratch + "/watched") { fs::create_directories(folder_); }
  std::string name() const override { return "board"; }
  std::string origin() const override { return folder_; }

  std::string make(Dice& dice) override {
    std::string text =
        R"({"kind":"train","step":50,"epoch":0.5,"loss":2.5,"lr":0.001,"layers":[{"gini":0.1},{"gini":2e-1}]})"
        "\n"
        R"({"kind":"eval","step":100,"epoch":1,"loss":2.25,"layers":[{"layer":0,"count":{"gini":0.1},)"
        R"("cliques":[[1,2,0.5]]}],"stage":1,"stage_title":"a\"b\u00e9"})"
        "\n"
        R"({"kind":"epoch","step":100,"epoch":1,"train_loss":2.4})"
        "\n"
        R"({"step":50,"seconds":1.5,"tokens_per_second":1e4,"operations_per_second":1e9,"matrix_rate":1e10})"
        "\n"
        R"({"step":100,"seconds":0.5,"tokens_per_second":1e4,"operations_per_second":1e9})"
        "\n"
        R"({"step":50,"load":[[100,90,110,100],[0,400,0,0]]})"
        "\n"
        R"({"step":40,"load":[[100,90,110,100],[0,400,0,0]]})"
        "\n"
        R"({"step":60,"epoch":1,"samples":[{"prompt":"Once","text":"a\u00e9"}],"name":"n","tags":["t"],"note":"x"})"
        "\n";
    if (dice.one_in(2)) {
      damage_text(text, dice, {"{", "}", "[", "]", "\"kind\":", "\"step\":", "null", "-1", "1e300", "1e-310", "\\"});
      return text;
    }
    std::string out;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      nlohmann::json line = nlohmann::json::parse(text.substr(begin, end - begin));
      if (dice.one_in(3)) damage_json(line, dice);
      out += written(line) + (dice.one_in(20) ? "\r\n" : "\n");
      begin = end + 1;
    }
    return out;
  }

  void read(const std::string& input) override {
    const bool all_walked = compare_lines(input);
    // One log polls while the files grow, another reads them at the end: both must give the same result.
    write(input.substr(0, input.size() / 2));
    RunLog growing("1", folder_, "runs/watched");
    look(growing);
    write(input);
    const nlohmann::json seen = look(growing);
    RunLog whole("1", folder_, "runs/watched");
    if (look(whole) != seen) throw std::logic_error("lines that come one by one make another run");
    // Existing data was removed: the run starts again.
    write("{\"kind\":\"train\",\"step\":1,\"loss\":1}\n");
    RunLog fresh("1", folder_, "runs/watched");
    if (look(growing) != look(fresh)) throw std::logic_error("something stays of a file that was replaced");
    if (!all_walked) bad_input(Code::file_damaged, "{}: a line was left out", folder_);
  }

 private:
  static bool compare_lines(const std::string& input) {
    bool all = true;
    for (std::size_t begin = 0; begin < input.size();) {
      const std::size_t end = std::min(input.find('\n', begin), input.size());
      const std::string_view line = std::string_view(input).substr(begin, end - begin);
      begin = end + 1;
      Walked walked;
      const bool taken = walk_json(line, walked);
      all = all && taken;
      if (line.find('\0') != std::string_view::npos) continue;  // where the other reader stops without an error
      Parsed parsed;
      const bool is_json = nlohmann::json::sax_parse(line, &parsed) && parsed.is_object;
      if (parsed.deepest > 60) continue;
      if (taken != is_json) throw std::logic_error("the two readers differ on whether a line is damaged");
      if (is_json && walked.numbers != parsed.numbers)
        throw std::logic_error("the numbers of a line were read otherwise");
    }
    return all;
  }

  // Sets a different modification time each time: the system's clock may not advance between two writes.
  void write(const std::string& text) {
    ++writes_;
    for (const char* name : {"metrics.jsonl", "rates.jsonl", "load.jsonl", "samples.jsonl", "labels.json"}) {
      const std::string path = folder_ + "/" + name;
      std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
      fs::last_write_time(path, fs::file_time_type(std::chrono::milliseconds(writes_)));
    }
  }

  // All requests of a page about a run.
  static nlohmann::json look(RunLog& log) {
    log.poll();
    written(log.news());
    nlohmann::json summary = log.summary();
    summary.erase("version");
    nlohmann::json curves = nlohmann::json::object(), loads = nlohmann::json::array();
    std::vector<std::string> metrics = summary["metrics"];
    metrics.insert(metrics.end(), {"train.layers.1.gini", "eval.layers.0.count.gini", "none", "none.", ".", ""});
    for (const std::string& metric : metrics) {
      for (const char* x : {"step", "tokens", "time", "elapsed", "clock", "train.lr", "eval.loss", "none."}) {
        nlohmann::json points = nlohmann::json::array();
        for (const XY& point : log.curve(metric, *x_axis(x), {})) points.push_back({point.x, point.y});
        curves[metric].push_back(points);
      }
    }
    for (int layer = 0; layer < 3; ++layer) {
      for (const RunLog::Load& one : log.load(layer)) loads.push_back({one.step, one.of_expert});
    }
    for (const LinePlace& place : log.evaluations()) log.evaluation(place);
    for (const LinePlace& place : log.samples()) log.sample(place);
    return nlohmann::json::parse(written({{"summary", summary}, {"curves", curves}, {"loads", loads}}));
  }

  const std::string folder_;
  std::int64_t writes_ = 0;
};

}  // namespace

void add_board_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder) {
  targets.push_back(std::make_unique<BoardTarget>(scratch_folder));
}

}  // namespace some::fuzz
