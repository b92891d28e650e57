#include "memory/memory_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/files/folders.h"
#include "core/old_names.h"
#include "tensor/safetensors.h"

namespace some {
namespace {

// A memory with contexts uses the second format name, so that a program without contexts rejects it.
constexpr const char *format_name = "some memory 1", *format_with_contexts = "some memory 3";
constexpr const char* format_without_followers = "some memory 2";  // contexts of a mixture with one source less
constexpr std::size_t max_texts = 1 << 20;

nlohmann::json to_json(const std::vector<HistoryEntry>& history) {
  nlohmann::json list = nlohmann::json::array();
  for (const HistoryEntry& entry : history) {
    switch (entry.kind) {
      case HistoryEntry::Kind::read:
        list.push_back({{"read", entry.reading.text},
                        {"begin", entry.reading.begin},
                        {"end", entry.reading.end},
                        {"window", entry.reading.window},
                        {"at_once", entry.reading.together}});
        break;
      case HistoryEntry::Kind::merge:
        list.push_back({{"merge", to_json(entry.others)}, {"settings", to_json(entry.settings)}});
        break;
      case HistoryEntry::Kind::prune: list.push_back({{"prune", entry.min_count}}); break;
      case HistoryEntry::Kind::refine: list.push_back({{"refine", entry.passes}}); break;
    }
  }
  return list;
}

std::vector<HistoryEntry> history_from(const JsonObject& from, const std::string& key,
                                       const std::vector<MemoryText>& texts) {
  std::vector<HistoryEntry> history;
  for (const JsonObject& one : from.objects(key)) {
    HistoryEntry entry;
    if (one.has("merge")) {
      entry.kind = HistoryEntry::Kind::merge;
      entry.settings = settings_from(one.object("settings"));
      entry.others = history_from(one, "merge", texts);
    } else if (one.has("prune")) {
      entry.kind = HistoryEntry::Kind::prune;
      entry.min_count = one.need<std::int64_t>("prune", 0, std::int64_t{1} << 40);
    } else if (one.has(key_in(one, "refine"))) {
      entry.kind = HistoryEntry::Kind::refine;
      entry.passes = one.need<std::int64_t>(key_in(one, "refine"), 1, max_refinement_passes);
    } else {
      const auto text = one.need<std::int64_t>("read", 0, static_cast<std::int64_t>(texts.size()) - 1);
      const auto tokens = static_cast<std::int64_t>(texts[static_cast<std::size_t>(text)].tokens.size());
      const auto begin = one.need<std::int64_t>("begin", 1, tokens);
      entry.reading = {text, begin, one.need<std::int64_t>("end", begin, tokens),
                       one.need<std::int64_t>("window", 1, max_window),
                       one.need<std::int64_t>("at_once", 1, std::int64_t{1} << 20)};
    }
    history.push_back(entry);
  }
  return history;
}

// If slots hold one token each, their tensors in the file have no K axis.
Shape entries_shape(std::int64_t entries, std::int64_t slots) {
  return entries == 1 ? Shape({slots}) : Shape({entries, slots});
}
Shape places_shape(std::int64_t entries, std::int64_t slots) {
  return entries == 1 ? Shape({slots, 2}) : Shape({entries, slots, 2});
}

// Unpacks places into a last axis of 2, so that other programs can read them without knowing the packing.
Tensor places_of(const Tensor& packed_places) {
  const Tensor host = packed_places.device().is_cpu() ? packed_places : packed_places.to(Device::cpu);
  Tensor out = Tensor::empty(places_shape(host.dim(0), host.dim(1)), DType::i64);
  for (std::int64_t m = 0; m < host.elements(); ++m) {
    const std::int64_t one = host.data<std::int64_t>()[m];
    const Place place = one == no_place ? Place{-1, -1} : unpacked(one);
    out.data<std::int64_t>()[2 * m] = place.text;
    out.data<std::int64_t>()[2 * m + 1] = place.offset;
  }
  return out;
}

class Loader {
 public:
  Loader(Context& ctx, const std::string& path) : ctx_(ctx), file_(SafetensorsFile::open(path)) {
    file_.rename(current_tensor);
  }

  Memory load() {
    const auto& metadata = file_.metadata();
    if (const auto found = metadata.find("format");
        found == metadata.end() || (found->second != format_name && found->second != format_with_contexts &&
                                    found->second != format_without_followers))
      bad_input(Code::memory_invalid, "{} is not a memory; 'some read RUN TEXT --memory {}' writes one", path(),
                path());
    const JsonObject header(parse_json(file_.require_metadata("memory"), path() + ": its header"),
                            path() + ": its header");
    Memory memory;
    memory.model = header.need<std::string>("model");
    memory.tokenizer = header.need<std::string>("tokenizer");
    memory.run = header.get<std::string>("run", "");
    memory.settings = settings_from(header.object("settings"));
    if (memory.settings.window < 1)
      bad_input(Code::memory_invalid, "{}: its header: window must be at least 1", path());
    const std::int64_t slots = memory.settings.slots, entries = memory.settings.values;
    const Shape keys = file_.shape("keys");
    if (keys.rank() != 2 || keys[0] != slots || keys[1] < 1)
      bad_input(Code::memory_invalid, "{}: keys has shape {}, but its settings require [{}, d]", path(), keys.text(),
                slots);
    const std::vector<std::string> names = header.need<std::vector<std::string>>("texts");
    if (names.size() > max_texts)
      bad_input(Code::memory_invalid, "{}: its header has {} texts, more than the maximum of {}", path(), names.size(),
                max_texts);
    std::vector<std::string> files = header.get<std::vector<std::string>>("files", {});  // missing in older files
    if (!files.empty() && files.size() != names.size())
      bad_input(Code::memory_invalid, "{}: its header has {} texts and the files of {}", path(), names.size(),
                files.size());
    files.resize(names.size());
    for (std::size_t i = 0; i < names.size(); ++i)
      memory.texts.push_back({names[i], tokens(fmt::format("text.{}", i)), files[i]});
    memory.history = history_from(header, key_in(header, "history"), memory.texts);

    Store& store = memory.store;
    store.reach = header.need<std::int64_t>("reach", 0, slots);
    store.mean = numbers("mean", {keys[1]}, -1e30, 1e30);
    store.keys = numbers("keys", keys, -1.001, 1.001);
    store.counts = numbers("counts", {slots}, 0, 1e15);
    store.usage = numbers("usage", {slots}, 0, 1e15);
    store.shares = numbers("shares", {memory.settings.mixed()}, 0, 1.001);
    if (const std::int64_t parts = memory.settings.partitions; parts > 1) {
      store.centroids = numbers("centroids", {parts, keys[1]}, -1e15, 1e15);
      if (store.reach < slots / parts || store.reach % (slots / parts) != 0)
        bad_input(Code::memory_invalid,
                  "{}: its header: reach is {}; must be a multiple of {}, the slots per partition", path(), store.reach,
                  slots / parts);
    }
    const Tensor values = load("values", entries_shape(entries, slots), DType::i32);
    const Tensor counts = file_.load("counts").to(DType::f64);
    if (entries > 1) store.entry_counts = numbers("entry_counts", {entries, slots}, 0, 1e15);
    const Tensor entry_counts = entries > 1 ? file_.load("entry_counts").to(DType::f64) : counts;
    for (std::int64_t m = 0; m < slots; ++m)
      check_slot(m, values.data<std::int32_t>(), entry_counts.data<double>(), counts.data<double>()[m], memory);
    store.values = on_device(values.reshape({entries, slots}));
    store.born = places("born", memory, values);
    store.hit = places("hit", memory, values);
    if (memory.settings.contexts > 0) load_contexts(header.object("contexts"), memory);
    return memory;
  }

 private:
  const std::string& path() const { return file_.path(); }
  // Checks one slot: it is empty, or it has tokens where it has counts, and these sum to its count.
  void check_slot(std::int64_t m, const std::int32_t* values, const double* entry_counts, double count,
                  const Memory& memory) const {
    const std::int64_t slots = memory.settings.slots, entries = memory.settings.values;
    double sum = 0;
    for (std::int64_t j = 0; j < entries; ++j) {
      const std::int32_t value = values[j * slots + m];
      const double token_count = entry_counts[j * slots + m];
      sum += token_count;
      if (value < -1 || (value == -1) != !(token_count > 0) || (j == 0 && (value == -1) != !(count > 0)))
        bad_input(Code::memory_damaged, "{}: slot {} is damaged: value {} with a count of {}", path(), m, value,
                  token_count);
    }
    if (count > 0 && (m >= memory.store.reach || !(std::abs(sum - count) <= 1e-4 * count)))
      bad_input(Code::memory_damaged, "{}: slot {} is damaged: its count is {}, but its tokens add up to {}", path(), m,
                count, sum);
  }
  template <typename T>
  std::vector<T> list(const std::string& name, std::int64_t width, DType type) const {
    const Shape shape = file_.shape(name);
    if (shape.rank() != 2 || shape[1] != width)
      bad_input(Code::memory_invalid, "{}: {} has shape {}; must be [n, {}]", path(), name, shape.text(), width);
    const Tensor stored = load(name, shape, type);
    return {stored.data<T>(), stored.data<T>() + stored.elements()};
  }
  void load_contexts(const JsonObject& header, Memory& memory) const {
    const ContextSettings settings = memory.settings.of_contexts();
    const int vocabulary = header.need<int>("vocabulary", 1, 1 << 22);
    ContextStore::State state;
    state.unit = header.need<double>("unit");
    state.evicted = header.need<std::int64_t>("evicted");
    state.nodes = list<std::int32_t>("contexts.nodes", 3 + settings.longest, DType::i32);
    state.entries = list<std::int32_t>("contexts.entries", 4, DType::i32);
    state.usage = list<double>("contexts.usage", 1, DType::f64);
    state.places = list<std::int64_t>("contexts.places", 4, DType::i64);
    state.counts_of_counts = list<std::int64_t>("contexts.counts", 4, DType::i64);
    std::vector<std::int64_t> packed_places;
    for (std::size_t i = 0; i + 1 < state.places.size(); i += 2) {
      const Place place{state.places[i], state.places[i + 1]};
      const bool fits = place.text >= 0 && place.text < std::ssize(memory.texts) && place.offset >= 0 &&
                        place.offset < std::ssize(memory.texts[static_cast<std::size_t>(place.text)].tokens);
      if (!fits)
        bad_input(Code::memory_invalid, "{}: contexts.places refers to token {} of text {}, which does not exist",
                  path(), place.offset, place.text);
      packed_places.push_back(packed(place));
    }
    state.places = std::move(packed_places);
    memory.contexts = ContextStore::restore(settings, vocabulary, state, path());
    memory.mixture = make_mixture(memory.settings, vocabulary);
    const bool followers = file_.metadata().at("format") != format_without_followers;
    memory.mixture.restore(list<double>("contexts.mixture", 1, DType::f64),
                           memory.mixture.sources() - (followers ? 0 : 1), path());
  }
  Tensor on_device(const Tensor& host) const { return ctx_.device.is_cpu() ? host : host.to(ctx_.device); }
  Tensor load(const std::string& name, const Shape& shape, DType type) const {
    if (const Shape found = file_.shape(name); found != shape || file_.dtype(name) != type)
      bad_input(Code::memory_invalid, "{}: {} is {} of shape {}; must be {} of shape {}", path(), name,
                name_of(file_.dtype(name)), found.text(), name_of(type), shape.text());
    return file_.load(name);
  }
  Tensor numbers(const std::string& name, const Shape& shape, double low, double high) const {
    const DType type = file_.dtype(name);
    const Tensor stored = load(name, shape, type == DType::f64 ? DType::f64 : DType::f32);
    const auto check = [&](const auto* from) {  // in its own type: the keys of a million slots are gigabytes
      for (std::int64_t i = 0; i < stored.elements(); ++i) {
        const double one = from[i];
        if (!(one >= low && one <= high))
          bad_input(Code::memory_invalid, "{}: {} contains {}; must be numbers from {} to {}", path(), name, one, low,
                    high);
      }
    };
    if (type == DType::f64)
      check(stored.data<double>());
    else
      check(stored.data<float>());
    return on_device(stored.dtype() == ctx_.master ? stored : stored.to(ctx_.master));
  }
  std::vector<std::int32_t> tokens(const std::string& name) const {
    const Shape shape = file_.shape(name);
    if (shape.rank() != 1)
      bad_input(Code::memory_invalid, "{}: {} has shape {}; must have one axis", path(), name, shape.text());
    const Tensor stored = load(name, shape, DType::i32);
    const std::int32_t* ids = stored.data<std::int32_t>();
    if (std::any_of(ids, ids + shape[0], [](std::int32_t id) { return id < 0; }))
      bad_input(Code::memory_invalid, "{}: {} contains a negative token", path(), name);
    return {ids, ids + shape[0]};
  }
  Tensor places(const std::string& name, const Memory& memory, const Tensor& values) const {
    const std::vector<MemoryText>& texts = memory.texts;
    const std::int64_t slots = memory.settings.slots, entries = memory.settings.values;
    const Tensor stored = load(name, places_shape(entries, slots), DType::i64);
    Tensor out = Tensor::empty({entries, slots}, DType::i64);
    for (std::int64_t m = 0; m < entries * slots; ++m) {
      const std::int64_t text = stored.data<std::int64_t>()[2 * m], offset = stored.data<std::int64_t>()[2 * m + 1];
      const bool empty = values.data<std::int32_t>()[m] < 0;
      const bool fits =
          empty ? text == -1 && offset == -1
                : text >= 0 && text < static_cast<std::int64_t>(texts.size()) && offset >= 0 &&
                      offset < static_cast<std::int64_t>(texts[static_cast<std::size_t>(text)].tokens.size());
      if (!fits)
        bad_input(Code::memory_invalid, "{}: {} of slot {} refers to token {} of text {}, which does not exist", path(),
                  name, m % slots, offset, text);
      out.data<std::int64_t>()[m] = empty ? no_place : packed({text, offset});
    }
    return on_device(out);
  }

  Context& ctx_;
  SafetensorsFile file_;
};

}  // namespace

namespace {

template <typename T>
Tensor table(const std::vector<T>& numbers, std::int64_t width, DType type) {
  Tensor out = Tensor::empty({std::ssize(numbers) / width, width}, type);
  std::copy(numbers.begin(), numbers.end(), out.data<T>());
  return out;
}

nlohmann::json add_contexts(const Memory& memory, std::vector<std::pair<std::string, Tensor>>& tensors) {
  const ContextStore::State state = memory.contexts.state();
  std::vector<std::int64_t> places;
  for (const std::int64_t one : state.places) {
    const Place place = unpacked(one);
    places.insert(places.end(), {place.text, place.offset});
  }
  tensors.emplace_back("contexts.nodes", table(state.nodes, 3 + memory.settings.contexts, DType::i32));
  tensors.emplace_back("contexts.entries", table(state.entries, 4, DType::i32));
  tensors.emplace_back("contexts.usage", table(state.usage, 1, DType::f64));
  tensors.emplace_back("contexts.places", table(places, 4, DType::i64));
  tensors.emplace_back("contexts.counts", table(state.counts_of_counts, 4, DType::i64));
  tensors.emplace_back("contexts.mixture", table(memory.mixture.state(), 1, DType::f64));
  return {{"vocabulary", memory.contexts.vocabulary()}, {"unit", state.unit}, {"evicted", state.evicted}};
}

}  // namespace

void save_memory(const Memory& memory, const std::string& path) {
  nlohmann::json names = nlohmann::json::array(), files = nlohmann::json::array();
  std::vector<std::pair<std::string, Tensor>> tensors;
  const Store& store = memory.store;
  tensors.emplace_back("mean", store.mean);
  tensors.emplace_back("keys", store.keys);
  tensors.emplace_back("values", store.values.reshape(entries_shape(store.entries(), store.slots())));
  if (store.entries() > 1) tensors.emplace_back("entry_counts", store.entry_counts);
  tensors.emplace_back("counts", store.counts);
  tensors.emplace_back("usage", store.usage);
  tensors.emplace_back("shares", store.shares);
  if (store.partitions() > 1) tensors.emplace_back("centroids", store.centroids);
  tensors.emplace_back("born", places_of(store.born));
  tensors.emplace_back("hit", places_of(store.hit));
  for (std::size_t i = 0; i < memory.texts.size(); ++i) {
    const MemoryText& text = memory.texts[i];
    names.push_back(text.name);
    files.push_back(text.file);
    Tensor ids = Tensor::empty({static_cast<std::int64_t>(text.tokens.size())}, DType::i32);
    std::copy(text.tokens.begin(), text.tokens.end(), ids.data<std::int32_t>());
    tensors.emplace_back(fmt::format("text.{}", i), ids);
  }
  nlohmann::json header{{"model", memory.model}, {"tokenizer", memory.tokenizer},
                        {"run", memory.run},     {"settings", to_json(memory.settings)},
                        {"reach", store.reach},  {"texts", names},
                        {"files", files},        {"history", to_json(memory.history)}};
  if (memory.settings.contexts > 0) header["contexts"] = add_contexts(memory, tensors);
  // A rename would replace the link itself. Only the file it leads to can be replaced atomically.
  const std::string target = is_link(path) && exists_path(path) ? std::filesystem::canonical(path).string() : path;
  remove_temporary_files_of(target);  // it may be large, and is in a folder of the user
  write_safetensors(target, tensors,
                    {{"format", memory.settings.contexts > 0 ? format_with_contexts : format_name},
                     {"memory", header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}});
}

MemorySaver::MemorySaver(const std::string& path) : path_(path), version_(file_stamp(path)) {}

void MemorySaver::save(const Memory& memory) {
  if (file_stamp(path_) != version_)
    failed(Code::memory_not_kept,
           "another program has written {} in the meantime, so the updates since then are not saved; repeat the "
           "command when the other program has ended",
           path_);
  save_memory(memory, path_);
  version_ = file_stamp(path_);
}

Memory load_memory(Context& ctx, const std::string& path) { return Loader(ctx, path).load(); }

Precision precision_of(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  return file.has("keys") && file.dtype("keys") == DType::f64 ? Precision::f64 : Precision::fp32;
}

}  // namespace some
