#include "data/token_file.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace some {
namespace {

constexpr char magic[8] = {'S', 'o', 'M', 'E', 't', 'o', 'k', 's'};
constexpr std::uint64_t version = 2;
constexpr std::size_t alignment = 8;  // of documents and of the table

struct Head {
  char magic[8];
  std::uint64_t version;
};

struct Tail {
  std::uint64_t table, documents, tokens, id_size, id_lengths;
  TokenKey key;
  std::uint64_t ids_hash;
  std::uint64_t checksum;  // of all preceding bytes
};

static_assert(sizeof(Head) == 16 && sizeof(Tail) == 80 && sizeof(DocumentEntry) == 32);

std::shared_ptr<XXH3_state_t> new_hash() {
  std::shared_ptr<XXH3_state_t> state(XXH3_createState(), [](XXH3_state_t* memory) { XXH3_freeState(memory); });
  XXH3_64bits_reset(state.get());
  return state;
}

std::uint64_t padding_of(std::uint64_t size) { return (alignment - size % alignment) % alignment; }

// Returns the size of the ids and of the byte lengths, if stored, without padding.
std::uint64_t record_size(const DocumentEntry& entry, std::uint64_t id_size) {
  return entry.tokens * (id_size + (entry.lengths != 0 ? sizeof(std::uint16_t) : 0));
}

constexpr std::uint16_t unknown_length = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t max_listed = 1 << 22;  // larger ids have their byte lengths stored in the documents
constexpr std::size_t block_size = 1 << 20;  // of the ids of an open document

template <typename Visit>
void for_each_id(const std::vector<char>& block, std::size_t size, Visit&& visit) {
  for (std::size_t at = 0; at < block.size(); at += size) {
    std::uint16_t narrow = 0;
    std::int32_t wide = 0;
    if (size == 2) {
      std::memcpy(&narrow, block.data() + at, sizeof narrow);
      wide = narrow;
    } else {
      std::memcpy(&wide, block.data() + at, sizeof wide);
    }
    visit(wide);
  }
}

}  // namespace

TokenWriter::TokenWriter(ByteSink sink, const TokenKey& key, std::int64_t vocab)
    : sink_(std::move(sink)), key_(key), vocab_(vocab), checksum_(new_hash()), ids_hash_(new_hash()) {
  Head head{};
  std::memcpy(head.magic, magic, sizeof magic);
  head.version = version;
  write(&head, sizeof head);
}

void TokenWriter::write(const void* data, std::size_t size) {
  if (size == 0) return;
  XXH3_64bits_update(checksum_.get(), data, size);
  sink_(data, size);
  position_ += size;
}

void TokenWriter::pad() {
  constexpr char zeros[alignment] = {};
  write(zeros, padding_of(position_));
}

// True if the byte length is the one already recorded for the id. The first length seen for an id becomes its length.
bool TokenWriter::matches_id(std::int32_t token, std::uint16_t length) {
  const auto id = static_cast<std::size_t>(token);
  if (id >= max_listed || length == unknown_length) return false;
  if (id >= id_lengths_.size()) id_lengths_.resize(id + 1, unknown_length);
  if (id_lengths_[id] == unknown_length) id_lengths_[id] = length;
  return id_lengths_[id] == length;
}

void TokenWriter::keep_id(std::int32_t id) {
  const std::size_t size = id_size(vocab_);
  if (id_blocks_.empty() || id_blocks_.back().size() + size > block_size) {
    id_blocks_.emplace_back();
    if (id_blocks_.size() > 1) id_blocks_.back().reserve(block_size);
  }
  std::vector<char>& block = id_blocks_.back();
  const auto narrow = static_cast<std::uint16_t>(id);
  const char* const from = size == 2 ? reinterpret_cast<const char*>(&narrow) : reinterpret_cast<const char*>(&id);
  block.insert(block.end(), from, from + size);
}

void TokenWriter::add_part(std::span<const std::int32_t> ids, std::span<const std::uint32_t> byte_lengths) {
  if (ids.size() != byte_lengths.size())
    failed(Code::shape_mismatch, "a document has {} ids and {} byte lengths", ids.size(), byte_lengths.size());
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_)
      failed(Code::token_out_of_range, "a document has the id {} in a vocabulary of {}", id, vocab_);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // A token may follow more blanks than 16 bits can count. The excess is added to the following tokens, so that the
    // sum stays correct.
    carried_ += byte_lengths[i];
    const auto length =
        static_cast<std::uint16_t>(std::min<std::uint64_t>(carried_, std::numeric_limits<std::uint16_t>::max()));
    carried_ -= length;
    if (!matches_id(ids[i], length)) {
      lengths_match_ = false;
      own_lengths_.emplace_back(open_tokens_ + i, length);
    }
    keep_id(ids[i]);
  }
  open_tokens_ += ids.size();
}

void TokenWriter::write_own_lengths() {
  std::vector<std::uint16_t> lengths;
  std::uint64_t position = 0;
  auto own = own_lengths_.begin();
  for (const std::vector<char>& block : id_blocks_) {
    lengths.clear();
    for_each_id(block, id_size(vocab_), [&](std::int32_t id) {
      if (own != own_lengths_.end() && own->first == position) {
        lengths.push_back(own++->second);
      } else {
        lengths.push_back(id_lengths_[static_cast<std::size_t>(id)]);
      }
      ++position;
    });
    write(lengths.data(), lengths.size() * sizeof(std::uint16_t));
  }
}

void TokenWriter::end_document(std::int64_t text_bytes) {
  XXH3_64bits_update(ids_hash_.get(), &open_tokens_, sizeof open_tokens_);
  table_.push_back({position_, open_tokens_, static_cast<std::uint64_t>(text_bytes), lengths_match_ ? 0u : 1u});
  std::vector<std::int32_t> ids;
  for (const std::vector<char>& block : id_blocks_) {
    ids.clear();
    for_each_id(block, id_size(vocab_), [&](std::int32_t id) { ids.push_back(id); });
    if (!ids.empty()) XXH3_64bits_update(ids_hash_.get(), ids.data(), ids.size() * sizeof ids[0]);
    write(block.data(), block.size());
  }
  if (!lengths_match_) write_own_lengths();
  pad();
  tokens_ += open_tokens_;
  id_blocks_.resize(std::min<std::size_t>(id_blocks_.size(), 1));  // most documents fit in the first
  if (!id_blocks_.empty()) id_blocks_[0].clear();
  own_lengths_.clear();
  if (own_lengths_.capacity() > block_size) own_lengths_.shrink_to_fit();
  open_tokens_ = carried_ = 0;
  lengths_match_ = true;
}

void TokenWriter::add(std::span<const std::int32_t> ids, std::span<const std::uint32_t> byte_lengths,
                      std::int64_t text_bytes) {
  add_part(ids, byte_lengths);
  end_document(text_bytes);
}

void TokenWriter::finish() {
  Tail tail{};
  tail.table = position_;
  tail.documents = table_.size();
  tail.tokens = tokens_;
  tail.key = key_;
  tail.id_size = id_size(vocab_);
  tail.id_lengths = id_lengths_.size();
  tail.ids_hash = XXH3_64bits_digest(ids_hash_.get());
  write(table_.data(), table_.size() * sizeof(DocumentEntry));
  write(id_lengths_.data(), id_lengths_.size() * sizeof(std::uint16_t));
  pad();
  write(&tail, offsetof(Tail, checksum));
  const std::uint64_t checksum = XXH3_64bits_digest(checksum_.get());
  sink_(&checksum, sizeof checksum);
}

std::shared_ptr<const TokenData::Impl> open_token_image(const MappedFile& image, const TokenKey& key,
                                                        std::string* problem) {
  const auto refuse = [&](const char* why) -> std::shared_ptr<const TokenData::Impl> {
    *problem = why;
    return nullptr;
  };
  if (image.size < sizeof(Head) + sizeof(Tail)) return refuse("it is too short");
  Head head;
  Tail tail;
  std::memcpy(&head, image.data, sizeof head);
  std::memcpy(&tail, image.data + image.size - sizeof tail, sizeof tail);
  if (std::memcmp(head.magic, magic, sizeof magic) != 0) return refuse("it is not a token file");
  if (head.version != version) return refuse("it is of another version");
  if (XXH3_64bits(image.data, image.size - sizeof tail.checksum) != tail.checksum)
    return refuse("its checksum is wrong");
  if (std::memcmp(&tail.key, &key, sizeof key) != 0)
    return refuse("it was built from other text or with another tokenizer");

  // A correct checksum excludes accidental damage only; the bounds are checked as well, so nothing outside the file is
  // read.
  const std::uint64_t end = image.size - sizeof tail;
  if (tail.id_size != 2 && tail.id_size != 4) return refuse("the size of its ids is unknown");
  if (tail.table > end || tail.table % alignment != 0 || tail.documents > end / sizeof(DocumentEntry) ||
      tail.id_lengths > end / sizeof(std::uint16_t))
    return refuse("its table of documents is out of range");
  const std::uint64_t table_size = tail.documents * sizeof(DocumentEntry);
  const std::uint64_t lengths_size = tail.id_lengths * sizeof(std::uint16_t);
  if (end - tail.table != table_size + lengths_size + padding_of(lengths_size))
    return refuse("its table of documents is out of range");
  auto impl = std::make_shared<TokenData::Impl>();
  impl->owner = image.owner;
  impl->data = image.data;
  impl->table = reinterpret_cast<const DocumentEntry*>(image.data + tail.table);
  impl->lengths = {reinterpret_cast<const std::uint16_t*>(image.data + tail.table + table_size), tail.id_lengths};
  impl->id_size = tail.id_size;
  impl->documents = static_cast<std::int64_t>(tail.documents);
  impl->hash = tail.ids_hash;
  std::uint64_t position = sizeof(Head), tokens = 0;
  for (std::uint64_t i = 0; i < tail.documents; ++i) {
    const DocumentEntry& entry = impl->table[i];
    if (entry.position != position || entry.tokens > tail.table / tail.id_size || entry.lengths > 1)
      return refuse("a document is out of range");
    const std::uint64_t size = record_size(entry, tail.id_size);
    position += size + padding_of(size);
    tokens += entry.tokens;
    if (position > tail.table) return refuse("a document is out of range");
  }
  if (position != tail.table || tokens != tail.tokens) return refuse("its counts are wrong");
  impl->tokens = static_cast<std::int64_t>(tokens);
  return impl;
}

TokenData tokens_in_memory(const TokenKey& key, std::int64_t vocab, const std::function<void(TokenWriter&)>& produce) {
  const auto memory = std::make_shared<std::vector<char>>();
  TokenWriter writer(
      [&](const void* bytes, std::size_t size) {
        const char* begin = static_cast<const char*>(bytes);
        memory->insert(memory->end(), begin, begin + size);
      },
      key, vocab);
  produce(writer);
  writer.finish();
  std::string problem;
  TokenData data;
  data.impl = open_token_image({memory, memory->data(), memory->size()}, key, &problem);
  if (!data.impl) failed(Code::token_cache_damaged, "token data was not written completely: {}", problem);
  return data;
}

TokenData make_token_data(const std::vector<std::vector<std::int32_t>>& ids,
                          const std::vector<std::vector<std::uint32_t>>& byte_lengths) {
  std::int64_t vocab = 0;
  for (const std::vector<std::int32_t>& document : ids) {
    for (const std::int32_t id : document) vocab = std::max<std::int64_t>(vocab, std::int64_t{id} + 1);
  }
  return tokens_in_memory({}, vocab, [&](TokenWriter& writer) {
    for (std::size_t document = 0; document < ids.size(); ++document) {
      const std::vector<std::uint32_t> lengths =
          byte_lengths.empty() ? std::vector<std::uint32_t>(ids[document].size(), 1) : byte_lengths.at(document);
      writer.add(ids[document], lengths, std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
    }
  });
}

namespace {

const DocumentEntry& entry_of(const std::shared_ptr<const TokenData::Impl>& impl, std::int64_t document) {
  if (!impl || document < 0 || document >= impl->documents)
    failed(Code::index_out_of_range, "document {} not found; the data has {}", document, impl ? impl->documents : 0);
  return impl->table[document];
}

const DocumentEntry& part_of(const std::shared_ptr<const TokenData::Impl>& impl, std::int64_t document,
                             std::int64_t begin, std::int64_t end) {
  const DocumentEntry& entry = entry_of(impl, document);
  if (begin < 0 || begin > end || end > static_cast<std::int64_t>(entry.tokens))
    failed(Code::index_out_of_range, "document {} has {} tokens; part {} to {} not found", document, entry.tokens,
           begin, end);
  return entry;
}

}  // namespace

std::int64_t TokenData::documents() const { return impl ? impl->documents : 0; }
std::int64_t TokenData::tokens() const { return impl ? impl->tokens : 0; }
std::uint64_t TokenData::hash() const { return impl ? impl->hash : 0; }

std::vector<std::int32_t> TokenData::ids(std::int64_t document, std::int64_t begin, std::int64_t end) const {
  const DocumentEntry& entry = part_of(impl, document, begin, end);
  const char* first = impl->data + entry.position;
  if (impl->id_size == 2) {
    const auto* ids = reinterpret_cast<const std::uint16_t*>(first);
    return {ids + begin, ids + end};
  }
  const auto* ids = reinterpret_cast<const std::int32_t*>(first);
  return {ids + begin, ids + end};
}

std::vector<std::uint16_t> TokenData::bytes(std::int64_t document, std::int64_t begin, std::int64_t end) const {
  const DocumentEntry& entry = part_of(impl, document, begin, end);
  if (entry.lengths != 0) {
    const auto* lengths =
        reinterpret_cast<const std::uint16_t*>(impl->data + entry.position + entry.tokens * impl->id_size);
    return {lengths + begin, lengths + end};
  }
  std::vector<std::uint16_t> out;
  out.reserve(static_cast<std::size_t>(end - begin));
  for (const std::int32_t id : ids(document, begin, end)) {
    // The file may come from anyone: an id without a byte length counts as 0 bytes.
    const auto at = static_cast<std::size_t>(static_cast<std::uint32_t>(id));
    out.push_back(at < impl->lengths.size() ? impl->lengths[at] : 0);
  }
  return out;
}

std::int64_t TokenData::document_tokens(std::int64_t document) const {
  return static_cast<std::int64_t>(entry_of(impl, document).tokens);
}

std::int64_t TokenData::document_text_bytes(std::int64_t document) const {
  return static_cast<std::int64_t>(entry_of(impl, document).text_bytes);
}

}  // namespace some
