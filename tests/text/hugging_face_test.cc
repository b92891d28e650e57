// Hugging Face's own JavaScript library, from npm, reads the tokenizers that we write.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temporary_folder.h"
#include "text/bpe_train.h"
#include "text/stories.h"

namespace some {
namespace {

class HuggingFace : public testing::TestWithParam<TokenizerKind> {};

TEST_P(HuggingFace, EncodesAlikeWithOurFile) {
  const std::string modules = std::string(SOME_BINARY_DIR) + "/web/node_modules";
  if (!std::filesystem::exists(modules + "/@huggingface/tokenizers"))
    GTEST_SKIP() << "needs the npm packages of web/: built with SOME_WEB=OFF";
  if (std::system("command -v node >/dev/null") != 0) GTEST_SKIP() << "needs node: not here";
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < 200; ++i) texts.push_back(make_story({}, i));
  BpeTrainOptions options;
  options.kind = GetParam();
  options.vocab_size = 900;
  std::size_t at = 0;
  const Tokenizer tokenizer = train_bpe(options, [&](std::string& text) {
    if (at == 100) return false;  // the other half has words not seen in training
    text = texts[at++];
    return true;
  });
  for (const char* text : {"Tabs\tand  double   spaces ", "don't — naïve café 😀 ½", "日本語 mixed 123 4567", "\n\n",
                           "a[EOS]b", "it's 5 o'clock...\n\nnew para"})
    texts.push_back(text);
  nlohmann::json expected = nlohmann::json::array();
  for (const std::string& text : texts) expected.push_back({{"text", text}, {"ids", tokenizer.encode(text)}});
  TemporaryFolder folder;
  tokenizer.save(folder / "tokenizer.json");
  const std::string cases = folder.write("expected.json", expected.dump());
  const std::string command = fmt::format("node '{}/web/test/tokenizer.test.mjs' '{}' '{}' '{}' 2>&1", SOME_SOURCE_DIR,
                                          folder / "tokenizer.json", cases, modules);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

INSTANTIATE_TEST_SUITE_P(Kinds, HuggingFace, testing::Values(TokenizerKind::whitespace, TokenizerKind::bytelevel),
                         [](const auto& info) { return std::string(tokenizer_kind_name(info.param)); });

}  // namespace
}  // namespace some
