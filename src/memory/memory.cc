#include "memory/memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/files/files.h"
#include "core/old_names.h"
#include "memory/entries.h"
#include "memory/partitions.h"

namespace some {
namespace {

// The slots of a store on the host, in double.
struct Slots {
  std::vector<double> keys, counts, usage;
  std::vector<std::int32_t> values;  // [K, M], like the three below
  std::vector<double> entry_counts;
  std::vector<std::int64_t> born, hit;
  std::size_t d = 0;

  explicit Slots(const Store& store)
      : keys(read_vector(store.keys)),
        counts(read_vector(store.counts)),
        usage(read_vector(store.usage)),
        entry_counts(read_vector(store.entry_counts_or_totals())),
        d(static_cast<std::size_t>(store.keys.dim(1))) {
    const auto host = [](const Tensor& tensor) { return tensor.device().is_cpu() ? tensor : tensor.to(Device::cpu); };
    const Tensor v = host(store.values), b = host(store.born), h = host(store.hit);
    values.assign(v.data<std::int32_t>(), v.data<std::int32_t>() + v.elements());
    born.assign(b.data<std::int64_t>(), b.data<std::int64_t>() + b.elements());
    hit.assign(h.data<std::int64_t>(), h.data<std::int64_t>() + h.elements());
  }

  bool empty(std::size_t m) const { return !(counts[m] > 0); }
  Entries<double, std::int64_t> entries(std::size_t m) {
    return {values.data() + m, entry_counts.data() + m, born.data() + m,
            hit.data() + m,    std::ssize(counts),      static_cast<int>(values.size() / counts.size())};
  }
  // Returns the token with the highest count, the first among equals.
  std::int32_t main_token(std::size_t m) {
    const auto contents = entries(m);
    std::int64_t best = 0;
    for (std::int64_t j = 1; j < contents.count; ++j) {
      if (contents.entry_counts[j * contents.stride] > contents.entry_counts[best * contents.stride]) best = j;
    }
    return contents.values[best * contents.stride];
  }
  void clear(std::size_t m) {
    std::fill_n(keys.begin() + static_cast<std::ptrdiff_t>(m * d), d, 0.0);
    counts[m] = usage[m] = 0;
    for (std::size_t at = m; at < values.size(); at += counts.size()) {
      values[at] = -1;
      entry_counts[at] = 0;
      born[at] = hit[at] = no_place;
    }
  }
  void take(std::size_t m, Slots& from, std::size_t slot) {
    clear(m);
    std::copy_n(from.keys.begin() + static_cast<std::ptrdiff_t>(slot * d), d,
                keys.begin() + static_cast<std::ptrdiff_t>(m * d));
    entries(m).merge_all(from.entries(slot));
    counts[m] = entries(m).total();
    usage[m] = from.usage[slot];
  }

  void put(Context& ctx, Store& store) const {
    const auto numbers = [&](const std::vector<double>& from, Tensor& to) {
      Tensor host = Tensor::empty(to.shape(), DType::f64);
      std::copy(from.begin(), from.end(), host.data<double>());
      to.copy_from(host.to(ctx.master));
    };
    numbers(keys, store.keys);
    numbers(counts, store.counts);
    numbers(usage, store.usage);
    if (store.entries() > 1) numbers(entry_counts, store.entry_counts);
    Tensor v = Tensor::empty(store.values.shape(), DType::i32), b = Tensor::empty(store.born.shape(), DType::i64),
           h = Tensor::empty(store.hit.shape(), DType::i64);
    std::copy(values.begin(), values.end(), v.data<std::int32_t>());
    std::copy(born.begin(), born.end(), b.data<std::int64_t>());
    std::copy(hit.begin(), hit.end(), h.data<std::int64_t>());
    store.values.copy_from(v);
    store.born.copy_from(b);
    store.hit.copy_from(h);
    store.reach = 0;
    for (std::size_t m = 0; m < counts.size(); ++m) {
      if (!empty(m)) store.reach = static_cast<std::int64_t>(m) + 1;
    }
    if (store.partitions() > 1) {  // whole partitions, at least the first
      const std::int64_t size = store.partition_size();
      store.reach = std::max<std::int64_t>(1, (store.reach + size - 1) / size) * size;
    }
  }
};

// The partitions of a store on the host, in double: which ones a key searches, and the eviction order of their slots. A
// store without partitions is one partition that every key searches.
class Partitions {
 public:
  Partitions(const Store& store, const MemorySettings& settings, Slots& slots)
      : slots_(slots),
        parts_(static_cast<std::size_t>(store.partitions())),
        size_(slots.counts.size() / parts_),
        nprobe_(static_cast<std::size_t>(settings.nprobe)),
        active_(parts_ > 1 ? static_cast<std::size_t>(store.partitions_active()) : 1),
        order_(parts_),
        next_(parts_, 0) {
    if (parts_ > 1) centroids_ = read_vector(store.centroids);
  }

  // Returns the first slots of the partitions that a key searches, nearest first.
  std::vector<std::size_t> seen_from(const double* key) const {
    if (parts_ == 1) return {0};
    std::vector<std::pair<double, std::size_t>> near;
    for (std::size_t p = 0; p < active_; ++p) {
      const double* centroid = centroids_.data() + p * slots_.d;
      const double length = std::sqrt(std::inner_product(centroid, centroid + slots_.d, centroid, 0.0));
      near.emplace_back(-std::inner_product(key, key + slots_.d, centroid, 0.0) / std::max(length, 1e-12), p * size_);
    }
    const std::size_t nprobe = std::min(nprobe_, active_);
    std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(nprobe), near.end());
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < nprobe; ++i) out.push_back(near[i].second);
    return out;
  }
  std::size_t size() const { return size_; }
  // Adds to the centroid of a slot's partition what was merged into the slot.
  void attract(std::size_t slot, const double* key, double count) {
    for (std::size_t c = 0; parts_ > 1 && c < slots_.d; ++c) centroids_[slot / size_ * slots_.d + c] += count * key[c];
  }

  // Returns the least used slot that was not assigned before, among the partitions that a key searches; none if all
  // were.
  std::optional<std::size_t> used_least(const double* key) {
    std::optional<std::size_t> best;
    for (const std::size_t first : seen_from(key)) {
      std::vector<std::size_t>& order = order_of(first / size_);
      const std::size_t at = next_[first / size_];
      if (at < order.size() && (!best || slots_.usage[order[at]] < slots_.usage[*best])) best = order[at];
    }
    return best;
  }
  // Marks a slot as assigned. Splits its partition if it is now full.
  void mark_given_away(Threads& threads, std::size_t slot) {
    const std::size_t part = slot / size_;
    ++next_[part];
    if (active_ == parts_) return;
    const auto first = static_cast<std::ptrdiff_t>(part * size_), width = static_cast<std::ptrdiff_t>(size_);
    const std::span<const double> counts(slots_.counts.data() + first, size_);
    if (!is_full(std::count_if(counts.begin(), counts.end(), [](double n) { return n > 0; }), width)) return;
    const auto d = static_cast<std::ptrdiff_t>(slots_.d);
    const PartitionSplit division =
        plan_partition_split(threads, std::span(slots_.keys).subspan(part * size_ * slots_.d, size_ * slots_.d), counts,
                             std::span(centroids_).subspan(part * slots_.d, slots_.d));
    std::size_t to = active_ * size_, left = part * size_;
    for (const std::int64_t m : division.go) slots_.take(to++, slots_, part * size_ + static_cast<std::size_t>(m));
    for (const std::int64_t m : division.stay) {
      if (const std::size_t from = part * size_ + static_cast<std::size_t>(m); from != left)
        slots_.take(left, slots_, from);
      ++left;
    }
    for (; left < (part + 1) * size_; ++left) slots_.clear(left);
    std::copy(division.centroid_of_stay.begin(), division.centroid_of_stay.end(),
              centroids_.begin() + static_cast<std::ptrdiff_t>(part) * d);
    std::copy(division.centroid_of_go.begin(), division.centroid_of_go.end(),
              centroids_.begin() + static_cast<std::ptrdiff_t>(active_) * d);
    for (const std::size_t p : {part, active_}) {
      order_[p].clear();
      next_[p] = 0;
    }
    ++active_;
  }

  void put(Context& ctx, Store& store) const {
    if (parts_ == 1) return;
    Tensor host = Tensor::empty(store.centroids.shape(), DType::f64);
    std::copy(centroids_.begin(), centroids_.end(), host.data<double>());
    store.centroids.copy_from(host.to(ctx.master));
  }

 private:
  // Computed at first use.
  std::vector<std::size_t>& order_of(std::size_t part) {
    std::vector<std::size_t>& order = order_[part];
    if (order.empty()) {
      order.resize(size_);
      std::iota(order.begin(), order.end(), part * size_);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return slots_.usage[a] < slots_.usage[b]; });
    }
    return order;
  }

  Slots& slots_;
  std::size_t parts_, size_, nprobe_, active_;
  std::vector<double> centroids_;
  std::vector<std::vector<std::size_t>> order_;
  std::vector<std::size_t> next_;
};

void move_texts(std::vector<HistoryEntry>& history, const std::vector<std::int64_t>& to) {
  for (HistoryEntry& entry : history) {
    if (entry.kind == HistoryEntry::Kind::read) entry.reading.text = to[static_cast<std::size_t>(entry.reading.text)];
    move_texts(entry.others, to);
  }
}

}  // namespace

std::string fingerprint(Model& model, const Tokenizer& tokenizer) {
  std::uint64_t hash = hash_bytes("memory", 6, tokenizer.hash());
  const auto add = [&](const std::string& name, const Tensor& values) {
    const Tensor plain = values.dtype() == DType::f32 ? values : values.to(DType::f32);
    const Tensor host = plain.device().is_cpu() ? plain : plain.to(Device::cpu);
    hash = hash_bytes(name.data(), name.size(), hash);
    hash = hash_bytes(host.raw(), host.bytes(), hash);
  };
  const ParameterStore& store = model.parameters();
  for (const auto& entry : store.entries()) add(first_tensor_name(entry.name), store.view(store.value, entry));
  if (model.config().ffn == Ffn::some) {
    for (const Layer& layer : model.layers())
      add(fmt::format("layers.{}.keys", layer.index), layer.keys.routing_keys());
    const std::uint64_t library = model.library_hash();
    hash = hash_bytes(&library, sizeof library, hash);
  }
  return hex(hash);
}

void bind_to_model(Memory& memory, Model& model, const Tokenizer& tokenizer, const std::string& run) {
  memory.model = fingerprint(model, tokenizer);
  memory.tokenizer = hex(tokenizer.hash());
  memory.run = run;
}

void require_model(const Memory& memory, const std::string& path, Model& model, const Tokenizer& tokenizer) {
  const std::string own = fingerprint(model, tokenizer);
  if (memory.model == own) return;
  bad_input(
      Code::memory_mismatch,
      "{} belongs to another model ({}, read with {}) than this one ({}); hidden states of different models cannot be "
      "compared; read the texts again with 'some read'",
      path, memory.model, memory.run.empty() ? "an unnamed run" : memory.run, own);
}

std::int64_t default_window(const ModelConfig& config) { return std::clamp<std::int64_t>(config.seq_len / 2, 1, 256); }

Memory make_memory(Context& ctx, MemorySettings settings, const ModelConfig& config, const Tensor& mean) {
  if (settings.window == 0) settings.window = default_window(config);
  if (settings.window > config.seq_len)
    bad_input(Code::window_out_of_range, "a window of {} tokens exceeds the model's context (model.seq_len = {})",
              settings.window, config.seq_len);
  Memory memory;
  memory.settings = settings;
  memory.store = make_store(ctx, settings, mean);
  if (settings.contexts > 0) {
    memory.contexts = ContextStore(settings.of_contexts(), config.vocab);
    memory.mixture = make_mixture(settings, config.vocab);
  }
  return memory;
}

ContextMixture make_mixture(const MemorySettings& settings, int vocabulary) {
  return ContextMixture(static_cast<int>(settings.beta.size()), settings.of_contexts().orders(), vocabulary,
                        settings.switch_rate);
}

std::int64_t slots_in_use(const Memory& memory) {
  std::int64_t used = 0;
  for (const double count : read_vector(memory.store.counts)) used += count > 0;
  return used;
}

std::vector<double> mixture_weights(const MemorySettings& settings, const std::vector<double>& shares) {
  std::vector<double> memory_weights(settings.beta.size(), 0.0);
  for (std::size_t s = 0; s < memory_weights.size(); ++s) {
    for (std::size_t j = 0; j < mixture_shares.size(); ++j)
      memory_weights[s] += mixture_shares[j] * shares[s * mixture_shares.size() + j];
  }
  return memory_weights;
}

std::vector<double> source_weights(const Memory& memory) {
  if (memory.settings.contexts > 0) return memory.mixture.general();
  std::vector<double> out = mixture_weights(memory.settings, read_vector(memory.store.shares));
  out.insert(out.begin(), 1 - std::accumulate(out.begin(), out.end(), 0.0));
  return out;
}

std::int64_t prune(Context& ctx, Memory& memory, std::int64_t min_count) {
  Slots slots(memory.store);
  std::int64_t emptied = 0;
  for (std::size_t m = 0; m < slots.counts.size(); ++m) {
    if (slots.empty(m) || slots.counts[m] >= static_cast<double>(min_count)) continue;
    slots.clear(m);
    ++emptied;
  }
  slots.put(ctx, memory.store);
  memory.contexts.prune(min_count);
  HistoryEntry entry;
  entry.kind = HistoryEntry::Kind::prune;
  entry.min_count = min_count;
  memory.history.push_back(entry);
  return emptied;
}

void merge(Context& ctx, Memory& memory, const Memory& other) {
  if (memory.model != other.model)
    bad_input(Code::memory_mismatch,
              "the two memories belong to different models ({} and {}), so their keys are not comparable", memory.model,
              other.model);
  if (memory.settings.contexts > 0 && other.settings.contexts > 0 &&
      memory.settings.contexts != other.settings.contexts)
    bad_input(Code::memory_settings,
              "the contexts of the two memories have up to {} and {} tokens; read one of them again with the other's "
              "--contexts",
              memory.settings.contexts, other.settings.contexts);
  // A text with the same name or file and the same beginning is the same text.
  std::vector<std::int64_t> to;
  for (const MemoryText& text : other.texts) {
    std::int64_t at = -1;
    for (std::size_t i = 0; i < memory.texts.size() && at < 0; ++i) {
      const std::vector<std::int32_t>& mine = memory.texts[i].tokens;
      const std::size_t both = std::min(mine.size(), text.tokens.size());
      const bool may_be =
          memory.texts[i].name == text.name || (!text.file.empty() && memory.texts[i].file == text.file);
      if (may_be && std::equal(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(both), text.tokens.begin()))
        at = static_cast<std::int64_t>(i);
    }
    if (at < 0) {
      at = static_cast<std::int64_t>(memory.texts.size());
      memory.texts.push_back(text);
    } else if (text.tokens.size() > memory.texts[static_cast<std::size_t>(at)].tokens.size()) {
      memory.texts[static_cast<std::size_t>(at)].tokens = text.tokens;
    }
    to.push_back(at);
  }
  const auto moved = [&](std::int64_t place) {
    if (place == no_place) return no_place;
    const Place from = unpacked(place);
    return packed({to[static_cast<std::size_t>(from.text)], from.offset});
  };
  Slots mine(memory.store), theirs(other.store);
  for (std::int64_t& place : theirs.born) place = moved(place);
  for (std::int64_t& place : theirs.hit) place = moved(place);
  Partitions parts(memory.store, memory.settings, mine);
  std::vector<std::size_t> unmatched;
  const std::size_t own = mine.counts.size(), d = mine.d;
  for (std::size_t m = 0; m < theirs.counts.size(); ++m) {
    if (theirs.empty(m)) continue;
    const double* key = theirs.keys.data() + m * d;
    const std::int32_t token = theirs.main_token(m);
    double best = memory.settings.threshold;
    std::size_t found = own;
    for (const std::size_t first : parts.seen_from(key)) {
      for (std::size_t i = first; i < first + parts.size(); ++i) {
        if (mine.empty(i) || !mine.entries(i).holds(token)) continue;
        const double product = std::inner_product(key, key + d, mine.keys.data() + i * d, 0.0);
        if (product < best || (product == best && i > found)) continue;
        if (!(product > memory.settings.threshold)) continue;
        best = product;
        found = i;
      }
    }
    if (found == own) {
      unmatched.push_back(m);
      continue;
    }
    double* here = mine.keys.data() + found * d;
    const double total = mine.counts[found] + theirs.counts[m];
    double square = 0;
    for (std::size_t c = 0; c < d; ++c) {
      here[c] = (mine.counts[found] * here[c] + theirs.counts[m] * key[c]) / total;
      square += here[c] * here[c];
    }
    for (std::size_t c = 0; c < d; ++c) here[c] /= std::max(std::sqrt(square), 1e-12);
    const auto contents = mine.entries(found), given = theirs.entries(m);
    for (std::int64_t j = 0; j < given.count; ++j) {
      const int at = contents.entry_of(given.values[j * given.stride]);
      if (given.values[j * given.stride] >= 0 && at < contents.count)
        contents.hit[at * contents.stride] =
            given.hit[j * given.stride];  // the other memory's texts count as read later
    }
    contents.merge_all(given);
    mine.counts[found] = contents.total();
    mine.usage[found] += theirs.usage[m];
    parts.attract(found, key, theirs.counts[m]);
  }
  std::stable_sort(unmatched.begin(), unmatched.end(),
                   [&](std::size_t a, std::size_t b) { return theirs.usage[a] > theirs.usage[b]; });
  for (const std::size_t m : unmatched) {
    const double* key = theirs.keys.data() + m * d;
    const std::optional<std::size_t> slot = parts.used_least(key);
    if (!slot || (!mine.empty(*slot) && mine.usage[*slot] >= theirs.usage[m])) continue;
    mine.take(*slot, theirs, m);
    parts.attract(*slot, key, theirs.counts[m]);
    parts.mark_given_away(*ctx.threads, *slot);
  }
  mine.put(ctx, memory.store);
  parts.put(ctx, memory.store);
  if (memory.settings.contexts > 0 && other.settings.contexts > 0) memory.contexts.merge(other.contexts, moved);
  HistoryEntry entry;
  entry.kind = HistoryEntry::Kind::merge;
  entry.settings = other.settings;
  entry.others = other.history;
  move_texts(entry.others, to);
  memory.history.push_back(entry);
}

}  // namespace some
