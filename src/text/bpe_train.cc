#include "text/bpe_train.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>

#include "core/cpus.h"
#include "core/error.h"
#include "text/pretokenize.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"
#include "text/word_counts.h"

namespace some {
namespace {

// Texts are passed to the counting threads in batches of this size.
constexpr std::size_t counting_batch_bytes = 1u << 20;

void count_text(TokenizerKind kind, std::string_view text, WordCounts& counts) {
  for_each_word(kind, text, [&](std::string_view word) { counts.add(word); });
}

// Counts words in worker threads, while the calling thread reads. The totals do not depend on which thread counted
// what.
class Counter {
 public:
  Counter(TokenizerKind kind, int threads) : kind_(kind), counts_(static_cast<std::size_t>(threads)) {
    for (WordCounts& counts : counts_) workers_.emplace_back([this, &counts] { work(counts); });
  }
  ~Counter() { finish(); }

  void add(std::vector<std::string> text_batch) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return waiting_.size() < 2 * workers_.size(); });
    waiting_.push_back(std::move(text_batch));
    work_.notify_one();
  }

  WordCounts take() {
    finish();
    if (failure_) std::rethrow_exception(failure_);
    WordCounts all = std::move(counts_[0]);
    for (std::size_t i = 1; i < counts_.size(); ++i) {
      for (const auto& [word, count] : counts_[i].entries()) all.add(word, count);
      counts_[i] = WordCounts();
    }
    all.finish();
    return all;
  }

 private:
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) {
      if (worker.joinable()) worker.join();
    }
  }

  void work(WordCounts& counts) {
    bool failed = false;
    for (;;) {
      std::vector<std::string> text_batch;
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [&] { return finished_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        text_batch = std::move(waiting_.front());
        waiting_.pop_front();
      }
      room_.notify_one();
      if (failed) continue;  // keeps taking texts, so that the calling thread does not wait
      try {
        for (const std::string& text : text_batch) count_text(kind_, text, counts);
      } catch (...) {
        failed = true;
        const std::lock_guard lock(mutex_);
        failure_ = std::current_exception();
      }
    }
  }

  TokenizerKind kind_;
  std::mutex mutex_;
  std::condition_variable work_, room_;
  std::deque<std::vector<std::string>> waiting_;
  bool finished_ = false;
  std::exception_ptr failure_;
  std::vector<WordCounts> counts_;
  std::vector<std::thread> workers_;
};

WordCounts count_words(const BpeTrainOptions& options, const std::function<bool(std::string&)>& next) {
  int threads = options.threads > 0 ? options.threads : usable_cpus();
  Counter counter(options.kind, std::max(1, threads));
  std::vector<std::string> text_batch;
  std::size_t bytes = 0;
  std::uint64_t texts = 0;
  for (std::string text; next(text); ++texts) {
    // Bytes that are not UTF-8 cannot be spelled in a vocabulary of characters.
    if (options.kind == TokenizerKind::whitespace) {
      if (const auto bad = find_invalid_utf8(text)) {
        bad_input(Code::text_not_utf8,
                  "text {} for the tokenizer is not UTF-8 at byte {}; only the bytelevel kind accepts arbitrary bytes",
                  texts + 1, *bad);
      }
    }
    bytes += text.size();
    text_batch.push_back(std::move(text));
    text.clear();
    if (bytes >= counting_batch_bytes) {
      counter.add(std::move(text_batch));
      text_batch.clear();
      bytes = 0;
    }
  }
  counter.add(std::move(text_batch));
  return counter.take();
}

using Pair = std::pair<TokenId, TokenId>;
struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const std::uint64_t key = (static_cast<std::uint64_t>(pair.first) << 32) | static_cast<std::uint32_t>(pair.second);
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ull) >> 20);
  }
};

// Maps pairs to numbers, 0 at first.
class PairTable {
 public:
  PairTable() : slots_(1u << 10) {}

  std::int64_t& operator[](const Pair& pair) {
    if ((used_ + 1) * 4 > slots_.size() * 3) grow();
    const std::uint64_t key = key_of(pair);
    Slot& slot = slots_[place_of(key)];
    if (slot.key == no_pair) {
      slot.key = key;
      ++used_;
    }
    return slot.value;
  }

 private:
  static constexpr std::uint64_t no_pair = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = no_pair;
    std::int64_t value = 0;
  };

  static std::uint64_t key_of(const Pair& pair) {
    return (static_cast<std::uint64_t>(pair.first) << 32) | static_cast<std::uint32_t>(pair.second);
  }
  std::size_t place_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = (key * 0x9E3779B97F4A7C15ull) >> 24 & mask;
    while (slots_[i].key != no_pair && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != no_pair) slots_[place_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

// Numbers of words. Most pairs occur in one word only, which takes no allocation.
class WordList {
 public:
  explicit WordList(std::span<const std::uint32_t> words) : size_(static_cast<std::uint32_t>(words.size())) {
    if (size_ == 1) {
      one_ = words[0];
    } else {
      several_.reset(new std::uint32_t[size_]);
      std::copy(words.begin(), words.end(), several_.get());
    }
  }
  std::span<const std::uint32_t> words() const { return {size_ == 1 ? &one_ : several_.get(), size_}; }

 private:
  std::uint32_t size_ = 0, one_ = 0;
  std::unique_ptr<std::uint32_t[]> several_;
};

// A possible merge. Order: the most frequent first, then the lowest ids.
struct Candidate {
  std::int64_t count;
  Pair pair;
  WordList words;
  bool operator<(const Candidate& other) const {
    if (count != other.count) return count < other.count;
    return pair > other.pair;
  }
};

// Follows the steps of Hugging Face's BpeTrainer, so that published vocabularies are reproduced. Two details matter if
// two pairs give the same token ("a"+"bc", "ab"+"c"): merging a pair does not lower its count, and a pair that is
// formed again later is merged again, with its last rank.
class Trainer {
 public:
  Trainer(const BpeTrainOptions& options, WordCounts word_counts) : options_(options) {
    for (const std::string& special : options.specials) add_token(special);
    specials_ = tokens_.size();
    add_alphabet(word_counts);
    add_words(word_counts);
    word_counts = WordCounts();  // frees the words, which are much of the memory
    add_pairs();
  }

  TokenizerParts run() {
    merge_pairs();
    TokenizerParts parts;
    parts.kind = options_.kind;
    for (std::size_t i = 0; i < specials_; ++i) {
      parts.added.push_back({static_cast<TokenId>(i), tokens_[i], false, true});
    }
    parts.model_tokens = tokens_.size();
    parts.tokens = std::move(tokens_);
    std::unordered_map<Pair, std::size_t, PairHash> last;
    for (std::size_t i = 0; i < merges_.size(); ++i) last[merges_[i]] = i;
    for (std::size_t i = 0; i < merges_.size(); ++i) {
      if (last[merges_[i]] == i) parts.merges.push_back(merges_[i]);
    }
    using Json = nlohmann::ordered_json;
    if (options_.kind == TokenizerKind::bytelevel) {
      parts.pre_tokenizer =
          Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
      parts.decoder =
          Json{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    } else {
      parts.pre_tokenizer = Json{{"type", "Whitespace"}};
      if (ids_.contains("[UNK]")) parts.unk_token = "[UNK]";
    }
    return parts;
  }

 private:
  TokenId add_token(const std::string& token) {
    const auto [entry, added] = ids_.emplace(token, static_cast<TokenId>(tokens_.size()));
    if (added) tokens_.push_back(token);
    return entry->second;
  }

  void add_alphabet(const WordCounts& word_counts) {
    std::set<std::uint32_t> alphabet;
    if (options_.kind == TokenizerKind::bytelevel) {
      for (int byte = 0; byte < 256; ++byte) alphabet.insert(byte_to_char(static_cast<std::uint8_t>(byte)));
    } else {
      for (const auto& [word, count] : word_counts.entries())
        for_each_char(word, [&](std::uint32_t c) { alphabet.insert(c); });
    }
    for (const std::uint32_t c : alphabet) {
      std::string token;
      append_utf8(token, c);
      char_ids_[c] = add_token(token);
    }
    if (tokens_.size() > options_.vocab_size) {
      options_.log.warning(
          Code::vocabulary_size_missed,
          "vocabulary of {} tokens: the special tokens and the alphabet already take {}; use a larger vocabulary",
          options_.vocab_size, tokens_.size());
    }
  }

  template <typename Visit>
  void for_each_char(std::string_view word, Visit&& visit) const {
    const char* const end = word.data() + word.size();
    for (const char* p = word.data(); p < end;) {
      if (options_.kind == TokenizerKind::bytelevel) {
        visit(byte_to_char(static_cast<std::uint8_t>(*p++)));
      } else {
        const CodePoint point = decode_utf8(p, end);
        visit(point.value);
        p += point.length;
      }
    }
  }

  void add_words(const WordCounts& word_counts) {
    // In sorted order, so that nothing depends on the order of a hash table.
    std::vector<const WordCounts::Entry*> sorted;
    sorted.reserve(word_counts.entries().size());
    for (const WordCounts::Entry& entry : word_counts.entries()) sorted.push_back(&entry);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->word < b->word; });
    symbols_.reserve(word_counts.bytes());
    begins_.reserve(sorted.size() + 1);
    counts_.reserve(sorted.size());
    for (const WordCounts::Entry* entry : sorted) {
      begins_.push_back(symbols_.size());
      for_each_char(entry->word, [&](std::uint32_t c) { symbols_.push_back(char_ids_.find(c)->second); });
      counts_.push_back(static_cast<std::int64_t>(entry->count));
    }
    begins_.push_back(symbols_.size());
  }

  void add_pairs() {
    PairTable numbers;  // 1 + index in formed_
    struct Size {
      std::size_t words = 0, last = 0;  // number of words, and 1 + the last one
    };
    std::vector<Size> sizes;
    const auto for_each_pair = [&](const auto& visit) {
      for (std::size_t word = 0; word < counts_.size(); ++word) {
        for (std::size_t i = begins_[word]; i + 1 < begins_[word + 1]; ++i)
          visit(Pair{symbols_[i], symbols_[i + 1]}, word);
      }
    };
    // The lists of words are the largest part of the memory, so they are allocated in their final size.
    for_each_pair([&](const Pair& pair, std::size_t word) {
      std::int64_t& number = numbers[pair];
      if (number == 0) {
        formed_.push_back({pair, {}});
        sizes.emplace_back();
        number = std::ssize(formed_);
      }
      Size& size = sizes[static_cast<std::size_t>(number - 1)];
      if (size.last != word + 1) ++size.words;
      size.last = word + 1;
      pairs_[pair] += counts_[word];
    });
    for (std::size_t i = 0; i < formed_.size(); ++i) formed_[i].words.reserve(sizes[i].words);
    for_each_pair(
        [&](const Pair& pair, std::size_t word) { formed_[static_cast<std::size_t>(numbers[pair] - 1)].add(word); });
    queue_formed();
  }

  // A pair that the current merge has formed, with the words that contain it.
  struct FormedPair {
    Pair pair;
    std::vector<std::uint32_t> words;
    void add(std::size_t word) {
      const auto index = static_cast<std::uint32_t>(word);
      if (words.empty() || words.back() != index) words.push_back(index);
    }
  };

  void queue_formed() {
    for (FormedPair& formed : formed_) {
      if (const std::int64_t count = pairs_[formed.pair]; count > 0)
        queue_.push({count, formed.pair, WordList(formed.words)});
      formed.words = {};
    }
    formed_.clear();
  }

  // Counts a pair formed by the merge that makes the token `made`, which is one of the two.
  void add_formed(const Pair& pair, TokenId made, std::size_t word) {
    pairs_[pair] += counts_[word];
    std::uint32_t& number = pair.second == made ? formed_before_[static_cast<std::size_t>(pair.first)]
                                                : formed_after_[static_cast<std::size_t>(pair.second)];
    if (number == 0) {
      formed_.push_back({pair, {}});
      number = static_cast<std::uint32_t>(formed_.size());
    }
    formed_[number - 1].add(word);
  }

  void merge_in_word(std::size_t index, Pair pair, TokenId made) {
    const std::span<TokenId> space(symbols_.data() + begins_[index], begins_[index + 1] - begins_[index]);
    const auto size = static_cast<std::size_t>(std::find(space.begin(), space.end(), no_symbol) - space.begin());
    const std::span<TokenId> word = space.first(size);
    std::size_t to = 0;
    for (std::size_t from = 0; from < size; ++from) {
      if (word[from] == pair.first && from + 1 < size && word[from + 1] == pair.second) {
        if (to > 0) {
          pairs_[{word[to - 1], pair.first}] -= counts_[index];
          add_formed({word[to - 1], made}, made, index);
        }
        if (from + 2 < size) {
          pairs_[{pair.second, word[from + 2]}] -= counts_[index];
          add_formed({made, word[from + 2]}, made, index);
        }
        word[to++] = made;
        ++from;
      } else {
        word[to++] = word[from];
      }
    }
    std::fill(word.begin() + static_cast<std::ptrdiff_t>(to), word.end(), no_symbol);
  }

  void merge_pairs() {
    while (tokens_.size() < options_.vocab_size && !queue_.empty()) {
      // The count of the top entry may be outdated, because other merges remove occurrences of its pair.
      Candidate top = std::move(const_cast<Candidate&>(queue_.top()));
      queue_.pop();
      const std::int64_t count = pairs_[top.pair];
      if (top.count != count) {
        top.count = count;
        queue_.push(std::move(top));
        continue;
      }
      if (count < 1 || options_.min_frequency > static_cast<std::uint64_t>(count)) break;
      const TokenId made = add_token(tokens_[static_cast<std::size_t>(top.pair.first)] +
                                     tokens_[static_cast<std::size_t>(top.pair.second)]);
      merges_.push_back(top.pair);
      formed_before_.resize(tokens_.size());
      formed_after_.resize(tokens_.size());
      for (const std::uint32_t word : top.words.words()) merge_in_word(word, top.pair, made);
      for (const FormedPair& formed : formed_) {
        formed_before_[static_cast<std::size_t>(formed.pair.first)] = 0;
        formed_after_[static_cast<std::size_t>(formed.pair.second)] = 0;
      }
      queue_formed();
    }
    if (tokens_.size() < options_.vocab_size) {
      options_.log.warning(Code::vocabulary_size_missed, "vocabulary of {} tokens: the text has pairs for only {}",
                           options_.vocab_size, tokens_.size());
    }
  }

  const BpeTrainOptions& options_;
  std::vector<std::string> tokens_;
  Vocabulary ids_;
  std::size_t specials_ = 0;
  std::unordered_map<std::uint32_t, TokenId> char_ids_;
  static constexpr TokenId no_symbol = -1;
  // Word w has the symbols begins_[w] to begins_[w + 1]; after merges, its last places hold no_symbol.
  std::vector<TokenId> symbols_;
  std::vector<std::size_t> begins_;
  std::vector<std::int64_t> counts_;  // of the words
  PairTable pairs_;                   // number of occurrences
  std::vector<FormedPair> formed_;
  // 1 + index in formed_ of the pair with this token before or after the one just made; 0 = none.
  std::vector<std::uint32_t> formed_before_, formed_after_;
  std::priority_queue<Candidate, std::deque<Candidate>> queue_;  // a deque grows without copies
  std::vector<Pair> merges_;
};

}  // namespace

Tokenizer train_bpe(const BpeTrainOptions& options, const std::function<bool(std::string&)>& next) {
  constexpr std::size_t most = std::numeric_limits<TokenId>::max();
  if (options.vocab_size > most)
    bad_input(Code::vocabulary_too_large, "a vocabulary of {} tokens is too large; the maximum is {}",
              options.vocab_size, most);
  for (const std::string& special : options.specials) {
    if (special.empty() || find_invalid_utf8(special))
      bad_input(Code::setting_out_of_range, "special tokens must be UTF-8 and not empty");
  }
  return Tokenizer(std::make_shared<const Tokenizer::Impl>(Trainer(options, count_words(options, next)).run()));
}

Tokenizer train_bpe(const BpeTrainOptions& options, CorpusReader& corpus) {
  return train_bpe(options, [&](std::string& story) { return corpus.next(story); });
}

}  // namespace some
