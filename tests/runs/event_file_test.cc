#include "runs/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "core/files/files.h"

namespace some {
namespace {

// An independent reader of the format: records, then the fields of an event.
struct Event {
  std::int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

template <class Number>
Number fixed(const std::string& bytes, std::size_t& at) {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

std::uint64_t varint(const std::string& bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(at++));
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::string piece(const std::string& bytes, std::size_t& at) {
  const std::size_t size = varint(bytes, at);
  at += size;
  return bytes.substr(at - size, size);
}

// A TensorProto of one string: dtype DT_STRING, a shape of one dimension of size 1, and the string.
std::string read_text(const std::string& tensor) {
  const std::string head("\x08\x07\x12\x04\x12\x02\x08\x01\x42", 9);
  EXPECT_EQ(tensor.substr(0, head.size()), head);
  std::size_t at = head.size();
  return piece(tensor, at);
}

Event read_event(const std::string& bytes) {
  Event event;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::uint64_t tag = varint(bytes, at);
    if (tag == (1 << 3 | 1)) {
      EXPECT_GT(fixed<double>(bytes, at), 1.6e9);
    } else if (tag == (2 << 3)) {
      event.step = static_cast<std::int64_t>(varint(bytes, at));
    } else if (tag == (3 << 3 | 2)) {
      event.version = piece(bytes, at);
    } else if (tag == (5 << 3 | 2)) {
      const std::string summary = piece(bytes, at);
      for (std::size_t i = 0; i < summary.size();) {
        EXPECT_EQ(varint(summary, i), 1u << 3 | 2);
        const std::string value = piece(summary, i);
        std::size_t j = 0;
        EXPECT_EQ(varint(value, j), 1u << 3 | 2);
        const std::string name = piece(value, j);
        const std::uint64_t field = varint(value, j);
        if (field == (8u << 3 | 2)) {
          event.texts[name] = read_text(piece(value, j));
          EXPECT_EQ(varint(value, j), 9u << 3 | 2);
          EXPECT_EQ(piece(value, j), "\x0a\x06\x0a\x04text");  // plugin_data { plugin_name: "text" }
        } else {
          EXPECT_EQ(field, 2u << 3 | 5);
          event.scalars[name] = fixed<float>(value, j);
        }
        EXPECT_EQ(j, value.size());
      }
    } else {
      ADD_FAILURE() << "field " << tag;
      break;
    }
  }
  return event;
}

std::vector<Event> read_events(const std::string& path) {
  const std::string bytes = read_file(path);
  const auto masked = [](std::string_view text) {
    const std::uint32_t sum = crc32c(text);
    return ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
  };
  std::vector<Event> events;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string length = bytes.substr(at, 8);
    const auto size = fixed<std::uint64_t>(bytes, at);
    EXPECT_EQ(fixed<std::uint32_t>(bytes, at), masked(length));
    const std::string event = bytes.substr(at, size);
    at += size;
    EXPECT_EQ(fixed<std::uint32_t>(bytes, at), masked(event));
    events.push_back(read_event(event));
  }
  return events;
}

TEST(EventFile, CheckSumIsTheKnownOne) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // the polynomial's standard check value
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, HoldsEveryNumberOfTheMetricsOnce) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "events";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string metrics = (folder / "metrics.jsonl").string(), path = (folder / "events.out.tfevents").string();
  const nlohmann::json train = {
      {"kind", "train"}, {"step", 50}, {"loss", 2.5}, {"layers", {{{"gini", 0.25}}, {{"gini", 0.5}}}}};
  const nlohmann::json eval = {{"kind", "eval"},
                               {"step", 300},
                               {"loss", 1.5},
                               {"layers", {{{"layer", 0}, {"count", {{"gini", 0.75}}}, {"cliques", {1, 2}}}}}};
  const std::string samples = (folder / "samples.jsonl").string();
  EventFile(path, metrics, samples).add(train);
  append_line(metrics, train.dump());
  append_line(metrics, "{\"kind\": \"train\", \"step\"");  // damaged by hand: skipped
  append_line(metrics, eval.dump());
  // A resumed run: the file has the lines that are kept, followed by new ones.
  EventFile again(path, metrics, samples);
  again.add({{"kind", "train"}, {"step", 350}, {"loss", 1.25}});
  const std::vector<Event> events = read_events(path);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].step, 50);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{
                                   {"train/loss", 2.5f}, {"gini/train layer 0", 0.25f}, {"gini/train layer 1", 0.5f}}));
  EXPECT_EQ(events[2].step, 300);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"eval/loss", 1.5f}, {"count gini/eval layer 0", 0.75f}}));
  EXPECT_EQ(events[3].step, 350);
}

TEST(EventFile, ShowsTheTextsOfEvaluations) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "event-texts";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string samples = (folder / "samples.jsonl").string(), path = (folder / "events.out.tfevents").string();
  const auto line = [](int step, const std::string& text) {
    return nlohmann::json{{"step", step}, {"samples", {{{"prompt", "Once"}, {"text", text}}, {{"text", "<b>x</b>"}}}}};
  };
  append_line(samples, line(10, " upon\na *time*").dump());
  EventFile(path, (folder / "metrics.jsonl").string(), samples).add_samples(line(20, " more"));
  const std::vector<Event> events = read_events(path);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].step, 10);
  EXPECT_EQ(events[1].texts, (std::map<std::string, std::string>{{"samples/1", "**Once** upon  \na \\*time\\*"},
                                                                 {"samples/2", "\\<b\\>x\\</b\\>"}}));
  EXPECT_EQ(events[2].step, 20);
  EXPECT_EQ(events[2].texts.at("samples/1"), "**Once** more");
}

}  // namespace
}  // namespace some
