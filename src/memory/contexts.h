// Contexts, the second kind of slot of a memory (spec 8): exact counts of which token followed the last 0 to N tokens
// of a text, smoothed as Kneser and Ney do. Everything here runs on the host, one token after another, in double
// precision and in one fixed order, so results are bit-identical on every machine, device and number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace some {

inline constexpr int longest_context = 8;               // the largest ContextSettings::longest
inline constexpr int max_orders = longest_context + 1;  // orders 0 to longest
inline constexpr std::int64_t min_context_entries = 1024;
inline constexpr std::int64_t max_context_entries = std::int64_t{1} << 28;

template <typename Int>
std::size_t index_of(Int i) {
  return static_cast<std::size_t>(i);
}

struct ContextSettings {
  int longest = 5;                // tokens of the longest context; its estimates have the orders 0 to longest
  std::int64_t entries = 131072;  // (context, follower) pairs at most, over all orders
  double decay = 0.001 / 256;     // of the usage of every entry, per token
  int orders() const { return longest + 1; }
  bool operator==(const ContextSettings&) const = default;
};

// One entry: a token that followed a context. Its size is fixed, so `entries` bounds the memory of the store.
struct ContextEntry {
  std::int32_t node = 0;             // its context
  std::int32_t token = 0;            // what followed it
  std::int32_t count = 0;            // Kneser-Ney count: at the longest context occurrences, below it continuations
  std::int32_t seen = 0;             // occurrences
  double usage = 0;                  // decayed occurrences, in a growing unit (ContextStore::unit)
  std::int64_t born = -1, hit = -1;  // packed places (memory/store.h) of its first and its last occurrence
};

// The entries of a position's context, independent of the target.
struct ContextMatch {
  int longest = -1;            // tokens of the longest context seen before; -1: nothing was learned yet
  std::int64_t seen = 0;       // Kneser-Ney count of that context: how often it was followed by something
  bool certain = false;        // only one token has followed it
  std::int32_t follower = -1;  // that token, if `certain`
  int depth = -1;              // contexts of up to this length have nodes; the longer ones are implied (below)
  std::array<std::int32_t, max_orders> nodes{};
};

// Contribution of one order to the estimate of a target: estimate = back * estimate of the order below + own.
struct ContextTerm {
  double own = 0, back = 1;
  const ContextEntry* entry = nullptr;  // the target after this context; null: never seen
};

// A mixture of the distributions of the orders as a sum of sparse parts: the uniform distribution, the own shares of
// each node (own_shares), and one further token.
struct ContextSpread {
  double uniform = 0;                      // weight of the uniform distribution
  std::array<double, max_orders> nodes{};  // weight of the own shares of ContextMatch::nodes, up to its depth
  double follower = 0;                     // of ContextMatch::follower
};

// A context that occurred only once needs no entries for longer contexts: they occurred once as well, with the same
// follower. Its node stores the tokens before it instead, and longer nodes are created when it occurs again. This is
// exact, and most contexts of a text need no entry.
// When all entries are in use, the least used eighth is evicted: lowest usage first; ties go to the longer context,
// then to the older entry. A longer context is never used more than the shorter one it ends with, so a context that is
// kept never loses the shorter ones.
class ContextStore {
 public:
  ContextStore() = default;
  ContextStore(const ContextSettings& settings, int vocabulary);

  const ContextSettings& settings() const { return settings_; }
  int vocabulary() const { return vocabulary_; }

  // before: the tokens before the target, the latest last; only the last `longest` of them matter. If there are fewer,
  // the text (or document) begins there.
  ContextMatch find(std::span<const std::int32_t> before) const;
  // out[orders]: how each order changes the estimate of a target. Orders above match.longest change nothing.
  void terms(const ContextMatch& match, std::int32_t target, std::span<ContextTerm> out) const;
  // The probability of one target under each order, out[orders]. Orders above match.longest equal the longest one.
  void estimate(const ContextMatch& match, std::int32_t target, std::span<double> out) const;
  // The same for every token: resizes `out` to [orders, vocabulary]. Bit-identical to estimate(); each order sums to 1.
  void distributions(const ContextMatch& match, std::vector<double>& out) const;
  // Splits the mixture of distributions() with weights[orders]; equal to it up to rounding.
  ContextSpread spread(const ContextMatch& match, std::span<const double> weights) const;
  // Contributions of the counts of each node to its distribution: node n has [first[n], first[n + 1]).
  struct OwnShares {
    std::vector<std::int32_t> first, tokens;
    std::vector<float> shares;
  };
  OwnShares own_shares() const;
  // Learns that `target` followed `before`, at a packed place (-1: unknown).
  void learn(std::span<const std::int32_t> before, std::int32_t target, std::int64_t place);

  std::int64_t size() const { return std::ssize(entries_); }    // entries in use
  std::int64_t contexts() const { return std::ssize(nodes_); }  // contexts with a node
  std::int64_t evicted() const { return evicted_; }             // entries evicted so far
  // Maximum bytes per entry, with its context and both indices; used to bound `entries`.
  static double bytes_per_entry();

  const std::vector<ContextEntry>& entries() const { return entries_; }
  std::vector<std::int32_t> tokens_of(std::int32_t node) const;  // a context's tokens, the latest last
  int order_of(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)].order; }  // how many
  // The entries of the longest context of a match with a node, highest count first (the lower token among equals).
  std::vector<ContextEntry> followers(const ContextMatch& match) const;

  // Removes entries seen less than min_count times; returns how many.
  std::int64_t prune(std::int64_t min_count);
  // Merges another store with the same settings: adds counts and usages of equal entries, inserts its other entries,
  // and evicts the least used as after learning. moved: maps its places.
  template <typename Moved>
  void merge(const ContextStore& other, Moved moved) {
    std::vector<ContextEntry> theirs = other.entries_;
    for (ContextEntry& entry : theirs) {
      entry.born = moved(entry.born);
      entry.hit = moved(entry.hit);
    }
    merge_entries(other, std::move(theirs));
  }
  // Replaces every place.
  template <typename Moved>
  void move_places(Moved moved) {
    for (ContextEntry& entry : entries_) {
      entry.born = moved(entry.born);
      entry.hit = moved(entry.hit);
    }
  }

  // Exports and restores the whole state as plain numbers, for files. restore() checks each of them and throws
  // bad_input, naming `where`.
  struct State {
    // [nodes, 3 + longest]: parent, the token it adds before its parent's, number of tokens kept before it (-1: its
    // longer contexts have nodes), and these tokens, the latest first. A node comes after its parent; node 0 is the
    // empty context.
    std::vector<std::int32_t> nodes;
    std::vector<std::int32_t> entries;           // [entries, 4]: node, token, count, seen
    std::vector<double> usage;                   // [entries]
    std::vector<std::int64_t> places;            // [entries, 2]
    std::vector<std::int64_t> counts_of_counts;  // [orders, 4]
    double unit = 1;
    std::int64_t evicted = 0;
    bool operator==(const State&) const = default;
  };
  State state() const;
  static ContextStore restore(const ContextSettings& settings, int vocabulary, const State& state,
                              const std::string& where);
  bool operator==(const ContextStore& other) const;

 private:
  struct Node {
    std::int32_t parent = -1, token = -1;
    std::int32_t first = -1;  // its newest entry
    std::int32_t order = 0;
    std::int32_t kept = 0;  // number of tokens in `rest`; -1: expanded, its longer contexts have nodes
    std::array<std::int32_t, longest_context> rest{};  // tokens before the context, the latest first
    std::int64_t total = 0;                            // sum of the counts
    std::array<std::int64_t, 3> distinct{};            // entries with a count of 1, 2, 3 or more
  };
  // Maps (node, token) to an index; open addressing, rebuilt when entries are evicted.
  class Index {
   public:
    std::int32_t find(std::int32_t a, std::int32_t b) const;
    void insert(std::int32_t a, std::int32_t b, std::int32_t value);
    void clear(std::size_t expected);

   private:
    struct Cell {
      std::uint64_t key = 0;
      std::int32_t value = -1;
    };
    std::size_t slot_of(std::uint64_t key) const;
    void grow();
    std::vector<Cell> cells_;
    std::size_t used_ = 0;
  };
  // Discounts of one order for counts of 1, 2, 3 and more.
  using Discounts = std::array<double, 3>;
  Discounts discounts(int order) const;
  static double back_off(const Node& node, const Discounts& d);
  static double own_share(std::int64_t count, const Node& node, const Discounts& d);

  std::int32_t add_node(std::int32_t parent, std::int32_t token);
  std::int32_t add_entry(std::int32_t node, const ContextEntry& entry);
  void expand(std::int32_t node);
  void set_count(std::int32_t entry, std::int32_t count);
  void count_entry(int order, std::int64_t count, int sign);
  std::int32_t longest_known(const ContextMatch& match, std::int32_t target) const;
  void make_room(std::int64_t wanted);
  void keep_only(const std::vector<char>& kept);
  void add_below(std::int32_t node, std::span<const std::int32_t> rest, const ContextEntry& entry);
  void join(std::int32_t node, const ContextEntry& entry);
  void merge_entries(const ContextStore& other, std::vector<ContextEntry> theirs);
  void rescale();

  ContextSettings settings_;
  int vocabulary_ = 0;
  std::vector<Node> nodes_;
  std::vector<ContextEntry> entries_;
  std::vector<std::int32_t> next_;  // the next older entry of the same node; -1: none
  Index children_, followers_;
  // Per order: entries, implied ones included, with a count of 1, 2, 3, 4.
  std::array<std::array<std::int64_t, 4>, max_orders> counts_of_counts_{};
  double unit_ = 1;  // usage of one occurrence now; grows by 1 / (1 - decay) per token
  std::int64_t evicted_ = 0;
};

}  // namespace some
