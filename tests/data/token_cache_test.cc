// The cache of tokenized text: used if it matches, rebuilt otherwise.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/random.h"
#include "data/small_corpora.h"
#include "data/token_file.h"
#include "temporary_folder.h"
#include "without_rights.h"

namespace some {
namespace {

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    config_ = small_config(folder_.write("t.txt", text_of(0, 20)), folder_.write("v.txt", text_of(50, 5)));
    cache_ = folder_.file("cache");
    plain_ = load(config_).train;
  }
  std::string train_file() {  // the larger of the two
    std::string largest;
    for (const auto& entry : std::filesystem::directory_iterator(cache_))
      if (largest.empty() || entry.file_size() > std::filesystem::file_size(largest)) largest = entry.path().string();
    return largest;
  }
  std::size_t cached_files() {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(cache_), std::filesystem::directory_iterator()));
  }
  void expect_rebuilt(const std::string& damaged) {
    const std::string path = train_file();
    const std::string sound = read_file(path);
    write_file_atomic(path, damaged);
    Listener listener;
    const Corpora corpora = load(config_, cache_, 1, listener.host);
    EXPECT_TRUE(same_tokens(corpora.train, plain_));
    EXPECT_TRUE(any_contains(listener.infos, path)) << "damage was not noticed";
    EXPECT_TRUE(listener.warnings.empty());
    EXPECT_EQ(read_file(path), sound) << "the cache was not made anew";
  }
  TemporaryFolder folder_;
  DataConfig config_;
  std::string cache_;
  TokenData plain_;
};

TEST_F(Cache, IsUsedAndGivesTheSame) {
  const Corpora first = load(config_, cache_);
  EXPECT_TRUE(same_tokens(first.train, plain_));
  EXPECT_EQ(cached_files(), 2u);
  const auto written = std::filesystem::last_write_time(train_file());
  Listener listener;
  bool tokenised = false;
  const Corpora second =
      load_corpora(listener.host, config_, 1, cache_, [&](const std::string& what, std::int64_t, std::int64_t) {
        tokenised = tokenised || what.starts_with("tokenizing");
      });
  EXPECT_FALSE(tokenised);
  EXPECT_TRUE(listener.infos.empty());
  EXPECT_EQ(std::filesystem::last_write_time(train_file()), written);
  EXPECT_TRUE(same_tokens(second.train, plain_));
}

TEST_F(Cache, OtherTextTokenizerOrEosIsNotMistaken) {
  load(config_, cache_);
  config_.eos = false;
  EXPECT_TRUE(same_tokens(load(config_, cache_).train, load(config_).train));
  config_.vocab = 290;
  EXPECT_TRUE(same_tokens(load(config_, cache_).train, load(config_).train));
  config_.train_documents = 19;
  EXPECT_TRUE(same_tokens(load(config_, cache_).train, load(config_).train));
  folder_.write("t.txt", text_of(1, 20));
  EXPECT_TRUE(same_tokens(load(config_, cache_).train, load(config_).train));
}

TEST_F(Cache, FlippedBitsAreNoticed) {
  load(config_, cache_);
  const std::string sound = read_file(train_file());
  std::set<std::size_t> places = {
      0, 8, 15, 16, 17, sound.size() / 2, sound.size() - 1, sound.size() - 8, sound.size() - 9};
  for (std::size_t field = 1; field <= 10; ++field) places.insert(sound.size() - 8 * field);
  const RandomStream stream = random_stream(1, "damage");
  for (std::uint64_t i = 0; i < 12; ++i) places.insert(stream.below(i, static_cast<std::uint32_t>(sound.size())));
  for (const std::size_t place : places) {
    SCOPED_TRACE(place);
    std::string damaged = sound;
    damaged[place] = static_cast<char>(damaged[place] ^ (1 << (place % 8)));
    expect_rebuilt(damaged);
  }
}

TEST_F(Cache, TruncatedEmptyAndLengthenedAreNoticed) {
  load(config_, cache_);
  const std::string sound = read_file(train_file());
  for (const std::size_t size : {std::size_t{1}, std::size_t{16}, std::size_t{95}, std::size_t{96}, sound.size() / 2,
                                 sound.size() - 80, sound.size() - 8, sound.size() - 1}) {
    SCOPED_TRACE(size);
    expect_rebuilt(sound.substr(0, size));
  }
  expect_rebuilt(sound + "x");
  expect_rebuilt(sound + std::string(8, '\0'));
  expect_rebuilt(
      "This is no token file at all, but it is long enough to be one: it has many more than eighty bytes in it.");
}

TEST_F(Cache, EmptyFileIsNoticed) {
  load(config_, cache_);
  const std::string path = train_file();
  write_file_atomic(path, "");
  EXPECT_TRUE(same_tokens(load(config_, cache_).train, plain_));
}

TEST_F(Cache, OfAnotherKeyIsNoticed) {
  load(config_, cache_);
  const std::string path = train_file();
  DataConfig other = config_;
  other.train = folder_.write("other.txt", text_of(7, 30));
  load(other, folder_.file("cache2"));
  std::string stranger;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("cache2")))
    if (stranger.size() < entry.file_size()) stranger = read_file(entry.path().string());
  expect_rebuilt(stranger);
}

TEST_F(Cache, NothingHalfDoneIsLeftWhenTheTextIsBad) {
  folder_.write("t.txt", text_of(0, 3) + "\xff");
  EXPECT_THROW(load(config_, cache_), Error);
  EXPECT_TRUE(!std::filesystem::exists(cache_) || cached_files() == 0);
}

// Images with a correct checksum but invalid contents are rejected without reading outside of them. A read-only run
// folder is supported.
TEST_F(Cache, WhereNothingCanBeWrittenTokensStayInMemory) {
  const auto loads_all_the_same = [&] {
    Listener listener;
    EXPECT_TRUE(same_tokens(load_corpora(listener.host, config_, 1, {cache_, true}, {}).train, plain_));
    EXPECT_TRUE(listener.infos.empty() && listener.warnings.empty());
    EXPECT_NE(unwritable_reason(cache_), "");
  };
  folder_.write("cache", "no folder");
  loads_all_the_same();
  EXPECT_THROW(load(config_, cache_), Error) << "an unwritable cache is an error if the cache is required";
  EXPECT_EQ(read_file(cache_), "no folder");
  std::filesystem::remove(cache_);
  std::filesystem::create_directory(cache_);
  const WithoutRights nobody(folder_.path());
  if (const std::string why = nobody.why_not(); !why.empty()) GTEST_SKIP() << why;
  using std::filesystem::perms;
  std::filesystem::permissions(cache_, perms::owner_read | perms::owner_exec);
  loads_all_the_same();
  std::filesystem::permissions(cache_, perms::none);
  loads_all_the_same();
  std::filesystem::permissions(cache_, perms::owner_all);
  load(config_, cache_);
  std::filesystem::permissions(cache_, perms::owner_read | perms::owner_exec);
  loads_all_the_same();
  std::filesystem::permissions(cache_, perms::owner_all);
}

TEST(TokenImage, NonsenseWithARightChecksumIsRefused) {
  std::string sound;
  TokenWriter writer([&](const void* data, std::size_t size) { sound.append(static_cast<const char*>(data), size); },
                     {}, 100);
  const std::vector<std::int32_t> ids = {5, 6, 7};
  const std::vector<std::uint32_t> lengths = {1, 2, 3};
  for (int i = 0; i < 4; ++i) writer.add(ids, lengths, 6);
  writer.finish();
  const auto opens = [](std::string image) {
    const std::uint64_t checksum = XXH3_64bits(image.data(), image.size() - 8);
    std::memcpy(image.data() + image.size() - 8, &checksum, 8);
    std::string problem;
    const auto impl = open_token_image({nullptr, image.data(), image.size()}, {}, &problem);
    return impl != nullptr;
  };
  EXPECT_TRUE(opens(sound));
  const std::size_t tail = sound.size() - 80, lengths_of_ids = tail - 8 * 2,
                    table = lengths_of_ids - 4 * sizeof(DocumentEntry);
  for (std::size_t place = table; place < tail + 40; place += 8) {
    if (place >= lengths_of_ids && place < tail) continue;                        // any number is possible,
    if (place < tail && (place - table) % sizeof(DocumentEntry) == 16) continue;  // as are bytes of text
    for (const std::uint64_t value :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{40}, ~std::uint64_t{0}, std::uint64_t{1} << 61}) {
      std::string image = sound;
      std::uint64_t before = 0;
      std::memcpy(&before, image.data() + place, 8);
      if (before == value) continue;
      std::memcpy(image.data() + place, &value, 8);
      EXPECT_FALSE(opens(image)) << place << " " << value;
    }
  }
}

// Ids take two bytes for vocabularies up to 65,536; byte lengths are stored only if they do not follow from the ids.
TEST(TokenImage, TakesNoMoreThanTheIdsNeed) {
  struct Case {
    std::int64_t vocab;
    std::size_t id_bytes;
  };
  for (const Case& c : {Case{10, 2}, Case{65536, 2}, Case{65537, 4}, Case{1 << 20, 4}}) {
    SCOPED_TRACE(c.vocab);
    EXPECT_EQ(id_size(c.vocab), c.id_bytes);
    const auto top = static_cast<std::int32_t>(c.vocab - 1);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 400; ++i) ids.push_back(i % 4 == 0 ? top : i % 4);
    std::vector<std::uint32_t> plain(ids.size()), own;
    for (std::size_t i = 0; i < ids.size(); ++i) plain[i] = ids[i] == top ? 9 : static_cast<std::uint32_t>(ids[i]) + 1;
    own = plain;
    own[399] += 1;
    std::vector<std::size_t> sizes;
    TokenData data;
    for (const bool with_own : {false, true}) {
      std::size_t size = 0;
      data = tokens_in_memory({}, c.vocab, [&](TokenWriter& writer) {
        writer.add(ids, plain, 1);
        writer.add(ids, with_own ? own : plain, 2);
        writer.add({}, {}, 0);
      });
      size = static_cast<std::size_t>(reinterpret_cast<const char*>(data.impl->table) - data.impl->data);
      sizes.push_back(size);
    }
    EXPECT_EQ(sizes[0], 16 + 2 * 400 * c.id_bytes);
    EXPECT_EQ(sizes[1], 16 + 2 * 400 * c.id_bytes + 400 * 2);
    EXPECT_EQ(data.ids(0), ids);
    EXPECT_EQ(data.ids(1), ids);
    EXPECT_EQ(data.bytes(0), std::vector<std::uint16_t>(plain.begin(), plain.end()));
    EXPECT_EQ(data.bytes(1), std::vector<std::uint16_t>(own.begin(), own.end()));
    EXPECT_EQ(data.bytes(1, 398, 400), std::vector<std::uint16_t>(own.begin() + 398, own.end()));
    EXPECT_EQ(data.ids(0, 3, 6), std::vector<std::int32_t>(ids.begin() + 3, ids.begin() + 6));
    EXPECT_EQ(data.document_tokens(1), 400);
    EXPECT_TRUE(data.ids(2).empty() && data.bytes(2).empty());
    EXPECT_THROW(data.ids(0, 3, 401), Error);
    EXPECT_THROW(data.bytes(0, 4, 3), Error);
    EXPECT_THROW(tokens_in_memory({}, c.vocab, [&](TokenWriter& writer) { writer.add({{top + 1}}, {{1u}}, 1); }),
                 Error);
    EXPECT_THROW(tokens_in_memory({}, c.vocab, [&](TokenWriter& writer) { writer.add({{-1}}, {{1u}}, 1); }), Error);
  }
}

// The hash identifies the data in checkpoints: it depends on the ids, not on how they are stored.
TEST(TokenImage, HashDoesNotDependOnTheWidth) {
  const std::vector<std::int32_t> ids = {5, 6, 7, 2};
  const std::vector<std::uint32_t> lengths = {1, 2, 3, 0};
  std::vector<std::uint64_t> hashes;
  for (const std::int64_t vocab : {100, 100'000})
    hashes.push_back(tokens_in_memory({}, vocab, [&](TokenWriter& writer) { writer.add(ids, lengths, 6); }).hash());
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], 0x386da29b96266714ull);
}

// A long document is added while it is tokenized: the image equals that of the whole document, whatever its parts.
TEST(TokenImage, ADocumentInPartsIsTheSame) {
  constexpr std::size_t count = 3'000'000;  // more than a block of ids
  for (const std::int64_t vocab : {1000, 100'000}) {
    std::vector<std::int32_t> ids(count);
    std::vector<std::uint32_t> lengths(count);
    for (std::size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<std::int32_t>(i * 7919 % 997);
      lengths[i] = static_cast<std::uint32_t>(ids[i] % 9 + 1 + (i % 1009 == 3 ? 2 : 0));
    }
    lengths[40] = 140'000;  // carried over the border of a part
    const auto image = [&](std::size_t part) {
      std::string out;
      TokenWriter writer([&](const void* data, std::size_t size) { out.append(static_cast<const char*>(data), size); },
                         {}, vocab);
      writer.add({{1, 2}}, {{1u, 2u}}, 3);
      for (std::size_t at = 0; at < count; at += part) {
        const std::size_t size = std::min(part, count - at);
        writer.add_part({ids.data() + at, size}, {lengths.data() + at, size});
      }
      EXPECT_EQ(writer.open_tokens(), count);
      writer.end_document(5);
      EXPECT_EQ(writer.open_tokens(), 0u);
      writer.add({{3}}, {{4u}}, 4);
      writer.finish();
      return out;
    };
    const std::string whole = image(count);
    for (const std::size_t part : {std::size_t{41}, std::size_t{65'536}}) EXPECT_TRUE(image(part) == whole) << part;
    // As before there were parts: ids, then all lengths, at the places that the table names.
    std::string problem;
    const auto owner = std::make_shared<std::string>(whole);
    TokenData data;
    data.impl = open_token_image({owner, owner->data(), owner->size()}, {}, &problem);
    ASSERT_TRUE(data.impl) << problem;
    EXPECT_EQ(data.ids(1), ids);
    std::vector<std::uint16_t> expected;
    std::uint64_t carried = 0;
    for (const std::uint32_t length : lengths) {
      carried += length;
      expected.push_back(static_cast<std::uint16_t>(std::min<std::uint64_t>(carried, 65535)));
      carried -= expected.back();
    }
    EXPECT_EQ(data.bytes(1), expected);
  }
}

TEST(TokenImage, MoreBlanksThanSixteenBitsCountAreCarriedOn) {
  const std::vector<std::int32_t> ids = {5, 5, 5, 6};
  const TokenData data = tokens_in_memory({}, 10, [&](TokenWriter& writer) {
    writer.add(ids, {{65535u, 7u, 70000u, 1u}}, 135543);
    writer.add(ids, {{7u, 7u, 7u, 1u}}, 22);
  });
  EXPECT_EQ(data.bytes(0), (std::vector<std::uint16_t>{65535, 7, 65535, 4466}));
  EXPECT_EQ(data.bytes(1), (std::vector<std::uint16_t>{7, 7, 7, 1}));
}

}  // namespace
}  // namespace some
