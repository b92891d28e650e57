#include "memory/contexts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "core/random.h"

namespace some {
namespace {

// Imaginary entries with counts of 1 to 4 (pseudocounts), so that discounts are defined before real entries exist.
constexpr std::array<double, 4> assumed{4.0, 1.0, 0.5, 0.35};
constexpr double largest_unit = 0x1p600, unit_step = 0x1p-600;  // a power of two scales without rounding

std::uint64_t key_of(std::int32_t a, std::int32_t b) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32) | static_cast<std::uint32_t>(b);
}

double discount_of(const std::array<double, 3>& discounts, std::int64_t count) {
  return discounts[static_cast<std::size_t>(std::min<std::int64_t>(count, 3) - 1)];
}

}  // namespace

std::size_t ContextStore::Index::slot_of(std::uint64_t key) const {
  const std::size_t mask = cells_.size() - 1;
  std::size_t slot = static_cast<std::size_t>(mix64(key)) & mask;
  while (cells_[slot].value >= 0 && cells_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

std::int32_t ContextStore::Index::find(std::int32_t a, std::int32_t b) const {
  return cells_.empty() ? -1 : cells_[slot_of(key_of(a, b))].value;
}

void ContextStore::Index::insert(std::int32_t a, std::int32_t b, std::int32_t value) {
  if (2 * (used_ + 1) > cells_.size()) grow();
  const std::uint64_t key = key_of(a, b);
  cells_[slot_of(key)] = {key, value};
  ++used_;
}

void ContextStore::Index::clear(std::size_t expected) {
  std::size_t size = 1024;
  while (size < 2 * expected + 2) size *= 2;
  cells_.assign(size, {});
  used_ = 0;
}

void ContextStore::Index::grow() {
  std::vector<Cell> before = std::move(cells_);
  cells_.assign(std::max<std::size_t>(1024, 2 * before.size()), {});
  for (const Cell& cell : before) {
    if (cell.value >= 0) cells_[slot_of(cell.key)] = cell;
  }
}

ContextStore::ContextStore(const ContextSettings& settings, int vocabulary)
    : settings_(settings), vocabulary_(vocabulary) {
  add_node(-1, -1);
  nodes_[0].kept = -1;
}

double ContextStore::bytes_per_entry() {
  // Bytes of one entry, with its place in two half-full indices and a node of its own.
  return static_cast<double>(sizeof(ContextEntry) + sizeof(std::int32_t) + sizeof(Node) +
                             4 * sizeof(std::uint64_t) * 2);
}

ContextStore::Discounts ContextStore::discounts(int order) const {
  std::array<double, 4> n;
  for (std::size_t i = 0; i < n.size(); ++i)
    n[i] = static_cast<double>(counts_of_counts_[index_of(order)][i]) + assumed[i];
  const double y = n[0] / (n[0] + 2 * n[1]);
  return {std::clamp(1 - 2 * y * n[1] / n[0], 0.05, 0.99), std::clamp(2 - 3 * y * n[2] / n[1], 0.1, 1.9),
          std::clamp(3 - 4 * y * n[3] / n[2], 0.15, 2.8)};
}

// Returns the probability mass that the discounts of a context leave to the order below.
double ContextStore::back_off(const Node& node, const Discounts& d) {
  return (d[0] * static_cast<double>(node.distinct[0]) + d[1] * static_cast<double>(node.distinct[1]) +
          d[2] * static_cast<double>(node.distinct[2])) /
         static_cast<double>(node.total);
}

double ContextStore::own_share(std::int64_t count, const Node& node, const Discounts& d) {
  return (static_cast<double>(count) - discount_of(d, count)) / static_cast<double>(node.total);
}

ContextMatch ContextStore::find(std::span<const std::int32_t> before) const {
  ContextMatch match;
  if (nodes_.empty() || nodes_[0].total == 0) return match;
  const int available = static_cast<int>(std::min<std::size_t>(before.size(), index_of(settings_.longest)));
  const auto back = [&](int i) { return before[before.size() - 1 - index_of(i)]; };  // the i-th latest token
  std::int32_t node = 0;
  match.depth = 0;
  match.nodes[0] = 0;
  while (match.depth < available) {
    const std::int32_t child = children_.find(node, back(match.depth));
    if (child < 0) break;
    node = child;
    match.nodes[index_of(++match.depth)] = node;
  }
  const Node& last = nodes_[index_of(node)];
  match.longest = match.depth;
  for (int i = 0; i < last.kept && match.longest < available && last.rest[index_of(i)] == back(match.longest); ++i)
    ++match.longest;
  match.seen = last.total;
  if (last.first >= 0 && next_[index_of(last.first)] < 0) {
    match.certain = true;
    match.follower = entries_[index_of(last.first)].token;
  }
  return match;
}

void ContextStore::terms(const ContextMatch& match, std::int32_t target, std::span<ContextTerm> out) const {
  for (int k = 0; k <= settings_.longest; ++k) {
    ContextTerm& term = out[index_of(k)] = {};
    if (k > match.longest) continue;
    const Discounts d = discounts(k);
    if (k > match.depth) {
      term.back = d[0];
      if (target != match.follower) continue;
      term.own = 1 - d[0];
      term.entry = &entries_[index_of(nodes_[index_of(match.nodes[index_of(match.depth)])].first)];
      continue;
    }
    const Node& node = nodes_[index_of(match.nodes[index_of(k)])];
    term.back = back_off(node, d);
    if (const std::int32_t entry = followers_.find(match.nodes[index_of(k)], target); entry >= 0) {
      term.entry = &entries_[index_of(entry)];
      term.own = own_share(term.entry->count, node, d);
    }
  }
}

void ContextStore::estimate(const ContextMatch& match, std::int32_t target, std::span<double> out) const {
  std::array<ContextTerm, max_orders> term;
  terms(match, target, term);
  double p = 1.0 / vocabulary_;
  for (std::size_t k = 0; k < index_of(settings_.orders()); ++k) out[k] = p = p * term[k].back + term[k].own;
}

void ContextStore::distributions(const ContextMatch& match, std::vector<double>& out) const {
  const std::size_t width = index_of(vocabulary_);
  out.resize(index_of(settings_.orders()) * width);
  for (int k = 0; k <= settings_.longest; ++k) {
    double* own = out.data() + index_of(k) * width;
    if (k == 0)
      std::fill_n(own, width, 1.0 / vocabulary_);
    else
      std::copy_n(own - width, width, own);
    if (k > match.longest) continue;
    const Discounts d = discounts(k);
    if (k > match.depth) {
      for (std::size_t v = 0; v < width; ++v) own[v] *= d[0];
      own[index_of(match.follower)] += 1 - d[0];
      continue;
    }
    const Node& node = nodes_[index_of(match.nodes[index_of(k)])];
    const double back = back_off(node, d);
    for (std::size_t v = 0; v < width; ++v) own[v] *= back;
    for (std::int32_t entry = node.first; entry >= 0; entry = next_[index_of(entry)])
      own[index_of(entries_[index_of(entry)].token)] += own_share(entries_[index_of(entry)].count, node, d);
  }
}

ContextSpread ContextStore::spread(const ContextMatch& match, std::span<const double> weights) const {
  ContextSpread out;
  // passed: the fraction of an order's own contribution that reaches the distributions of itself and of the longer
  // orders.
  double passed = 0;
  for (int k = settings_.longest; k >= 0; --k) {
    passed += weights[index_of(k)];
    if (k > match.longest) continue;
    const Discounts d = discounts(k);
    if (k > match.depth) {
      out.follower += passed * (1 - d[0]);
      passed *= d[0];
      continue;
    }
    out.nodes[index_of(k)] = passed;
    passed *= back_off(nodes_[index_of(match.nodes[index_of(k)])], d);
  }
  out.uniform = passed;
  return out;
}

ContextStore::OwnShares ContextStore::own_shares() const {
  OwnShares out;
  out.first.assign(nodes_.size() + 1, 0);
  for (const ContextEntry& entry : entries_) ++out.first[index_of(entry.node) + 1];
  for (std::size_t n = 1; n < out.first.size(); ++n) out.first[n] += out.first[n - 1];
  out.tokens.resize(entries_.size());
  out.shares.resize(entries_.size());
  std::vector<std::int32_t> next(out.first.begin(), out.first.end() - 1);
  std::array<Discounts, max_orders> of_orders{};
  for (int k = 0; k <= settings_.longest; ++k) of_orders[index_of(k)] = discounts(k);
  for (const ContextEntry& entry : entries_) {
    const Node& node = nodes_[index_of(entry.node)];
    const auto at = index_of(next[index_of(entry.node)]++);
    out.tokens[at] = entry.token;
    out.shares[at] = static_cast<float>(own_share(entry.count, node, of_orders[index_of(node.order)]));
  }
  return out;
}

std::int32_t ContextStore::longest_known(const ContextMatch& match, std::int32_t target) const {
  if (match.longest > match.depth && target == match.follower) return match.longest;
  for (int k = match.depth; k >= 0; --k) {
    if (followers_.find(match.nodes[index_of(k)], target) >= 0) return k;
  }
  return -1;
}

std::int32_t ContextStore::add_node(std::int32_t parent, std::int32_t token) {
  const auto index = static_cast<std::int32_t>(nodes_.size());
  Node node;
  node.parent = parent;
  node.token = token;
  if (parent >= 0) {
    node.order = nodes_[index_of(parent)].order + 1;
    children_.insert(parent, token, index);
  }
  if (node.order == settings_.longest) node.kept = -1;
  nodes_.push_back(node);
  return index;
}

std::int32_t ContextStore::add_entry(std::int32_t node, const ContextEntry& entry) {
  const auto index = static_cast<std::int32_t>(entries_.size());
  Node& owner = nodes_[index_of(node)];
  entries_.push_back(entry);
  entries_.back().node = node;
  next_.push_back(owner.first);
  owner.first = index;
  owner.total += entry.count;
  ++owner.distinct[index_of(std::min(entry.count, 3) - 1)];
  followers_.insert(node, entry.token, index);
  return index;
}

void ContextStore::count_entry(int order, std::int64_t count, int sign) {
  if (count >= 1 && count <= 4) counts_of_counts_[index_of(order)][index_of(count - 1)] += sign;
}

void ContextStore::set_count(std::int32_t entry, std::int32_t count) {
  ContextEntry& one = entries_[index_of(entry)];
  Node& node = nodes_[index_of(one.node)];
  count_entry(node.order, one.count, -1);
  count_entry(node.order, count, +1);
  --node.distinct[index_of(std::min(one.count, 3) - 1)];
  ++node.distinct[index_of(std::min(count, 3) - 1)];
  node.total += count - one.count;
  one.count = count;
}

// Makes the next longer context of a context that occurred only once, before it occurs again.
void ContextStore::expand(std::int32_t index) {
  const Node node = nodes_[index_of(index)];
  if (node.kept < 0) return;
  nodes_[index_of(index)].kept = -1;
  if (node.kept == 0) return;
  const std::int32_t child = add_node(index, node.rest[0]);
  Node& longer = nodes_[index_of(child)];
  if (longer.kept >= 0) {
    longer.kept = node.kept - 1;
    std::copy_n(node.rest.begin() + 1, longer.kept, longer.rest.begin());
  }
  ContextEntry entry = entries_[index_of(node.first)];
  add_entry(child, entry);
}

void ContextStore::learn(std::span<const std::int32_t> before, std::int32_t target, std::int64_t place) {
  make_room(2 * settings_.orders());
  const std::int32_t known = longest_known(find(before), target);
  const int available = static_cast<int>(std::min<std::size_t>(before.size(), index_of(settings_.longest)));
  const auto back = [&](int i) { return before[before.size() - 1 - index_of(i)]; };
  const ContextEntry fresh{0, target, 1, 1, unit_, place, place};
  std::int32_t node = 0;
  for (int k = 0;; ++k) {
    expand(node);
    const std::int32_t entry = followers_.find(node, target);
    if (entry < 0) {
      add_entry(node, fresh);
      count_entry(k, 1, +1);
    } else {
      if (k >= known) set_count(entry, entries_[index_of(entry)].count + 1);
      ContextEntry& one = entries_[index_of(entry)];
      ++one.seen;
      one.usage += unit_;
      one.hit = place;
    }
    if (k == available) break;
    std::int32_t child = children_.find(node, back(k));
    if (child >= 0) {
      node = child;
      continue;
    }
    child = add_node(node, back(k));
    Node& leaf = nodes_[index_of(child)];
    if (leaf.kept >= 0) {
      leaf.kept = available - (k + 1);
      for (int i = 0; i < leaf.kept; ++i) leaf.rest[index_of(i)] = back(k + 1 + i);
    }
    add_entry(child, fresh);
    for (int order = k + 1; order <= available; ++order) count_entry(order, 1, +1);
    break;
  }
  unit_ /= 1 - settings_.decay;
  if (unit_ > largest_unit) rescale();
}

void ContextStore::rescale() {
  unit_ *= unit_step;
  for (ContextEntry& entry : entries_) entry.usage *= unit_step;
}

void ContextStore::make_room(std::int64_t wanted) {
  if (size() + wanted <= settings_.entries) return;
  const std::int64_t left = settings_.entries - settings_.entries / 8, gone = size() - left;
  if (gone <= 0) return;
  std::vector<std::int32_t> order(entries_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto goes_first = [&](std::int32_t a, std::int32_t b) {
    const ContextEntry &one = entries_[index_of(a)], &other = entries_[index_of(b)];
    if (one.usage != other.usage) return one.usage < other.usage;
    const std::int32_t length = nodes_[index_of(one.node)].order, others = nodes_[index_of(other.node)].order;
    return length != others ? length > others : a < b;
  };
  std::nth_element(order.begin(), order.begin() + gone, order.end(), goes_first);
  std::vector<char> kept(entries_.size(), 1);
  for (std::int64_t i = 0; i < gone; ++i) kept[index_of(order[index_of(i)])] = 0;
  evicted_ += gone;
  keep_only(kept);
}

// Removes all other entries, and contexts that have none left. Indices keep their order. The counts of counts stay:
// they describe what was read, not what is kept.
void ContextStore::keep_only(const std::vector<char>& kept) {
  std::vector<ContextEntry> entries = std::move(entries_);
  std::vector<Node> nodes = std::move(nodes_);
  std::vector<char> used(nodes.size(), 0);
  used[0] = 1;
  std::size_t left = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!kept[i]) continue;
    used[index_of(entries[i].node)] = 1;
    ++left;
  }
  entries_.clear();
  nodes_.clear();
  next_.clear();
  children_.clear(nodes.size());
  followers_.clear(left);
  std::vector<std::int32_t> to(nodes.size(), -1);
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (!used[n]) continue;
    to[n] = add_node(n == 0 ? -1 : to[index_of(nodes[n].parent)], nodes[n].token);
    Node& node = nodes_.back();
    node.kept = nodes[n].kept;
    node.rest = nodes[n].rest;
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (kept[i]) add_entry(to[index_of(entries[i].node)], entries[i]);
  }
}

std::int64_t ContextStore::prune(std::int64_t min_count) {
  std::vector<char> kept(entries_.size());
  std::int64_t gone = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    kept[i] = entries_[i].seen >= min_count;
    gone += !kept[i];
  }
  if (gone > 0) keep_only(kept);
  return gone;
}

std::vector<std::int32_t> ContextStore::tokens_of(std::int32_t node) const {
  std::vector<std::int32_t> out;
  for (; node > 0; node = nodes_[index_of(node)].parent) out.push_back(nodes_[index_of(node)].token);
  return out;
}

std::vector<ContextEntry> ContextStore::followers(const ContextMatch& match) const {
  std::vector<ContextEntry> out;
  if (match.depth < 0) return out;
  for (std::int32_t entry = nodes_[index_of(match.nodes[index_of(match.depth)])].first; entry >= 0;
       entry = next_[index_of(entry)])
    out.push_back(entries_[index_of(entry)]);
  std::sort(out.begin(), out.end(), [](const ContextEntry& a, const ContextEntry& b) {
    return a.count != b.count ? a.count > b.count : a.token < b.token;
  });
  return out;
}

void ContextStore::add_below(std::int32_t index, std::span<const std::int32_t> rest, const ContextEntry& entry) {
  if (rest.empty() || nodes_[index_of(index)].order == settings_.longest) return;
  expand(index);
  std::int32_t child = children_.find(index, rest[0]);
  if (child < 0) {
    child = add_node(index, rest[0]);
    if (Node& leaf = nodes_[index_of(child)]; leaf.kept >= 0) {
      leaf.kept = static_cast<std::int32_t>(rest.size()) - 1;
      std::copy(rest.begin() + 1, rest.end(), leaf.rest.begin());
    }
    add_entry(child, entry);
    return;
  }
  add_below(child, rest.subspan(1), entry);
  join(child, entry);
}

// Adds an entry to the one of its token in a context, or inserts it.
void ContextStore::join(std::int32_t node, const ContextEntry& entry) {
  if (nodes_[index_of(node)].first >= 0) expand(node);
  const std::int32_t own = followers_.find(node, entry.token);
  if (own < 0) {
    add_entry(node, entry);
    return;
  }
  set_count(own, entries_[index_of(own)].count + entry.count);
  ContextEntry& one = entries_[index_of(own)];
  one.seen += entry.seen;
  one.usage += entry.usage;
  one.hit = entry.hit;  // the other memory's texts count as read later
}

void ContextStore::merge_entries(const ContextStore& other, std::vector<ContextEntry> theirs) {
  for (ContextEntry& entry : theirs) entry.usage *= unit_ / other.unit_;
  const auto before = counts_of_counts_;
  std::vector<std::int32_t> to(other.nodes_.size(), 0);
  // A leaf of the other store is one entry: it is inserted with the contexts it implies, where this store has its
  // context.
  for (std::size_t n = 1; n < other.nodes_.size(); ++n) {
    const Node& node = other.nodes_[n];
    const std::int32_t parent = to[index_of(node.parent)];
    expand(parent);
    const std::span<const std::int32_t> rest(node.rest.data(), index_of(std::max(0, node.kept)));
    to[n] = children_.find(parent, node.token);
    if (to[n] >= 0) {
      if (node.kept < 0)
        expand(to[n]);
      else
        add_below(to[n], rest, theirs[index_of(node.first)]);
      continue;
    }
    to[n] = add_node(parent, node.token);
    Node& own = nodes_[index_of(to[n])];
    own.kept = node.kept;
    own.rest = node.rest;
  }
  for (const ContextEntry& entry : theirs) join(to[index_of(entry.node)], entry);
  for (std::size_t k = 0; k < before.size(); ++k) {
    for (std::size_t i = 0; i < before[k].size(); ++i)
      counts_of_counts_[k][i] = before[k][i] + other.counts_of_counts_[k][i];
  }
  make_room(0);
}

ContextStore::State ContextStore::state() const {
  State out;
  for (const Node& node : nodes_) {
    out.nodes.insert(out.nodes.end(), {node.parent, node.token, node.kept});
    for (int i = 0; i < settings_.longest; ++i) out.nodes.push_back(i < node.kept ? node.rest[index_of(i)] : -1);
  }
  for (const ContextEntry& entry : entries_) {
    out.entries.insert(out.entries.end(), {entry.node, entry.token, entry.count, entry.seen});
    out.usage.push_back(entry.usage);
    out.places.insert(out.places.end(), {entry.born, entry.hit});
  }
  for (int k = 0; k < settings_.orders(); ++k)
    out.counts_of_counts.insert(out.counts_of_counts.end(), counts_of_counts_[index_of(k)].begin(),
                                counts_of_counts_[index_of(k)].end());
  out.unit = unit_;
  out.evicted = evicted_;
  return out;
}

ContextStore ContextStore::restore(const ContextSettings& settings, int vocabulary, const State& state,
                                   const std::string& where) {
  ContextStore out(settings, vocabulary);
  const std::size_t width = 3 + index_of(settings.longest), nodes = state.nodes.size() / width;
  const std::size_t entries = state.entries.size() / 4;
  const auto require = [&](bool holds, const char* what, std::size_t index) {
    if (!holds)
      bad_input(Code::memory_damaged, "{}: the contexts are damaged: invalid {} {}; restore a copy", where, what,
                index);
  };
  require(state.nodes.size() == nodes * width && nodes >= 1, "number of contexts", nodes);
  require(state.entries.size() == entries * 4 && state.usage.size() == entries && state.places.size() == 2 * entries &&
              static_cast<std::int64_t>(entries) <= settings.entries,
          "number of entries", entries);
  require(state.counts_of_counts.size() == 4 * index_of(settings.orders()), "number of counts of counts",
          state.counts_of_counts.size());
  require(state.unit >= 1e-300 && state.unit <= largest_unit && state.evicted >= 0, "unit", 0);
  const auto is_token = [&](std::int32_t token) { return token >= 0 && token < vocabulary; };
  for (std::size_t n = 0; n < nodes; ++n) {
    const std::int32_t* from = state.nodes.data() + n * width;
    const std::int32_t parent = from[0], token = from[1], kept = from[2];
    if (n == 0) {
      require(parent == -1 && token == -1 && kept == -1, "context", n);
      continue;
    }
    require(parent >= 0 && parent < static_cast<std::int32_t>(n) && is_token(token), "context", n);
    const Node& shorter = out.nodes_[index_of(parent)];
    require(shorter.kept == -1 && shorter.order < settings.longest && out.children_.find(parent, token) < 0, "context",
            n);
    Node& node = out.nodes_[index_of(out.add_node(parent, token))];
    require(kept >= -1 && kept <= settings.longest - node.order && (kept >= 0 || node.kept >= -1) &&
                (node.order < settings.longest || kept == -1),
            "context", n);
    node.kept = kept;
    for (int i = 0; i < settings.longest; ++i) {
      require(i < kept ? is_token(from[3 + i]) : from[3 + i] == -1, "context", n);
      if (i < kept) node.rest[index_of(i)] = from[3 + i];
    }
  }
  for (std::size_t i = 0; i < entries; ++i) {
    const std::int32_t* from = state.entries.data() + 4 * i;
    const ContextEntry entry{
        from[0], from[1], from[2], from[3], state.usage[i], state.places[2 * i], state.places[2 * i + 1]};
    require(entry.node >= 0 && entry.node < static_cast<std::int32_t>(nodes) && is_token(entry.token) &&
                entry.count >= 1 && entry.seen >= entry.count && entry.usage >= 0 && entry.usage <= 1e300 &&
                entry.born >= -1 && entry.hit >= -1 && out.followers_.find(entry.node, entry.token) < 0,
            "entry", i);
    out.add_entry(entry.node, entry);
  }
  for (std::size_t n = 1; n < nodes; ++n) {
    const Node& node = out.nodes_[n];
    require(node.first >= 0, "context", n);
    if (node.kept < 0) continue;
    const ContextEntry& only = out.entries_[index_of(node.first)];
    require(out.next_[index_of(node.first)] < 0 && only.count == 1 && only.seen == 1, "context", n);
  }
  for (int k = 0; k < settings.orders(); ++k) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int64_t count = state.counts_of_counts[4 * index_of(k) + i];
      require(count >= 0 && count <= std::int64_t{1} << 50, "count of counts", 4 * index_of(k) + i);
      out.counts_of_counts_[index_of(k)][i] = count;
    }
  }
  out.unit_ = state.unit;
  out.evicted_ = state.evicted;
  return out;
}

bool ContextStore::operator==(const ContextStore& other) const {
  return settings_ == other.settings_ && vocabulary_ == other.vocabulary_ && state() == other.state();
}

}  // namespace some
